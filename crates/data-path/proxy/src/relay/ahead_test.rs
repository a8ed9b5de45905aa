use http::{HeaderMap, HeaderValue};

use super::*;

fn ahead(bytes_max: usize, room_bytes: u64) -> (Ahead, Arc<AheadRoom>) {
    let room = Arc::new(AheadRoom::new(room_bytes));
    (Ahead::new(Arc::clone(&room), bytes_max), room)
}

fn data(length: usize) -> Frame<Bytes> {
    Frame::data(vec![7; length].into())
}

fn popped(ahead: &mut Ahead) -> Option<Bytes> {
    ahead.pop().map(|frame| frame.into_data().expect("data"))
}

#[test]
fn small_pieces_share_a_block_and_no_piece_keeps_what_it_was_cut_from() {
    let (mut ahead, room) = ahead(64 << 10, u64::MAX);
    let buffer = Bytes::from(vec![1; 1 << 20]);
    for at in 0..40 {
        assert!(ahead.has_room());
        ahead.push(Frame::data(buffer.slice(at * 100..(at + 1) * 100)));
    }
    assert_eq!(room.held_bytes(), 8 << 10);
    assert!(buffer.is_unique(), "nothing else holds the buffer");
    assert_eq!(popped(&mut ahead).map(|bytes| bytes.len()), Some(4_000));
    assert!(ahead.is_empty() && ahead.pop().is_none());
    assert_eq!(room.held_bytes(), 0);
}

#[test]
fn a_block_is_counted_until_nobody_has_its_bytes_any_more() {
    let (mut ahead, room) = ahead(64 << 10, u64::MAX);
    ahead.push(data(10));
    let bytes = popped(&mut ahead).expect("bytes");
    let slice = bytes.slice(3..4);
    drop((bytes, ahead));
    assert_eq!(room.held_bytes(), 8 << 10);
    drop(slice);
    assert_eq!(room.held_bytes(), 0);
}

#[test]
fn a_reply_has_no_more_than_its_own_limit_and_what_is_beyond_waits_as_it_came() {
    let (mut ahead, room) = ahead(24 << 10, u64::MAX);
    assert!(ahead.has_room());
    ahead.push(data(30 << 10));
    assert!(!ahead.has_room());
    assert_eq!(room.held_bytes(), 24 << 10);
    assert_eq!(popped(&mut ahead).map(|bytes| bytes.len()), Some(8 << 10));
    // The rest moves into the room that was released, and does not fill it.
    assert!(ahead.has_room());
    let lengths: Vec<usize> = std::iter::from_fn(|| popped(&mut ahead)).map(|b| b.len()).collect();
    assert_eq!(lengths, [8 << 10, 8 << 10, 6 << 10]);
    assert_eq!(room.held_bytes(), 0);
}

#[test]
fn the_last_block_is_filled_before_it_is_full() {
    let (mut ahead, _room) = ahead(8 << 10, u64::MAX);
    ahead.push(data((8 << 10) - 1));
    assert!(ahead.has_room());
    ahead.push(data(1));
    assert!(!ahead.has_room());
}

#[test]
fn without_a_limit_s_worth_of_room_nothing_is_read_ahead() {
    for (bytes_max, room_bytes) in [(0, u64::MAX), (1 << 20, 0), (1 << 20, 8191)] {
        let (mut ahead, room) = ahead(bytes_max, room_bytes);
        assert!(!ahead.has_room(), "{bytes_max} of {room_bytes}");
        ahead.push(data(3));
        assert_eq!(room.held_bytes(), 0);
        assert_eq!(popped(&mut ahead).map(|bytes| bytes.len()), Some(3), "nothing is lost");
    }
    let (mut small, room) = ahead(100, u64::MAX);
    assert!(small.has_room());
    small.push(data(100));
    assert!(!small.has_room());
    assert_eq!(room.held_bytes(), 100);
}

#[test]
fn replies_share_the_room_and_one_gets_what_another_gave_back() {
    let room = Arc::new(AheadRoom::new(16 << 10));
    let mut both = [0, 1].map(|_| Ahead::new(Arc::clone(&room), 1 << 20));
    both[0].push(data(16 << 10));
    assert!(!both[1].has_room());
    drop(popped(&mut both[0]));
    assert!(both[1].has_room());
    both[1].push(data(1));
    assert!(!both[0].has_room());
    assert_eq!(room.held_bytes(), 16 << 10);
    drop(both);
    assert_eq!(room.held_bytes(), 0);
}

#[test]
fn trailers_come_last() {
    let (mut ahead, _room) = ahead(8 << 10, u64::MAX);
    ahead.push(data(10 << 10));
    let trailers = HeaderMap::from_iter([(http::header::TE, HeaderValue::from_static("x"))]);
    ahead.push(Frame::trailers(trailers.clone()));
    assert_eq!(popped(&mut ahead).map(|bytes| bytes.len()), Some(8 << 10));
    assert_eq!(popped(&mut ahead).map(|bytes| bytes.len()), Some(2 << 10));
    assert!(!ahead.is_empty());
    assert_eq!(ahead.pop().and_then(|frame| frame.into_trailers().ok()), Some(trailers));
    assert!(ahead.is_empty());
}

#[test]
fn whatever_is_pushed_and_popped_comes_out_once_in_order_and_within_the_limits() {
    for seed in 0..100 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let bytes_max = dice.usize(0..100_000);
        let room_bytes = dice.u64(0..120_000);
        let (mut ahead, room) = ahead(bytes_max, room_bytes);
        let (mut pushed, mut out) = (Vec::new(), Vec::new());
        let mut neighbours = Vec::new();
        for _ in 0..400 {
            match dice.u8(0..10) {
                0..5 if ahead.has_room() => {
                    let longest = [10, 300, 40_000][dice.usize(0..3)];
                    let length = dice.usize(0..longest);
                    let mut piece = vec![0; length];
                    dice.fill(&mut piece);
                    pushed.extend_from_slice(&piece);
                    ahead.push(Frame::data(piece.into()));
                }
                5..8 => out.extend(popped(&mut ahead).unwrap_or_default()),
                8 => neighbours.extend(room.take(dice.u64(0..20_000))),
                _ => neighbours.truncate(dice.usize(0..3)),
            }
            let held: usize = ahead.blocks.iter().map(|block| block.bytes.capacity()).sum();
            assert!(held <= bytes_max && room.held_bytes() <= room_bytes, "seed {seed}");
        }
        out.extend(std::iter::from_fn(|| popped(&mut ahead)).flatten());
        assert!(out == pushed, "seed {seed}");
        drop(neighbours);
        assert_eq!(room.held_bytes(), 0, "seed {seed}");
    }
}
