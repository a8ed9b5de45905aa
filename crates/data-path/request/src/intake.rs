//! Reads the bodies of requests, within limits of size, memory and time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use spillway_front::body_budget::{BodyReservation, NoRoom};
use spillway_front::client::BodyHolder;
use spillway_front::front_door::FrontDoor;
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_route::ShedReason;
use spillway_transport::{
    DISCARD_TIME_MAX, DISCARDED_BYTES_MAX, UploadPace, WireBody, WireError, coarse_clock,
    refuse_oversize,
};
use tokio::time::{Instant as Moment, timeout, timeout_at};

/// Most bytes allocated at once for a body, whatever length its sender announces.
const FIRST_ROOM_MAX: usize = 256 << 10;
/// Most bytes allocated at once, as a multiple of the bytes received: senders that announce much
/// and send little take little memory.
const ROOM_FACTOR: usize = 8;
/// Growth factor of the buffer of an announced body: each step leaves the smaller buffer to the
/// allocator.
const ANNOUNCED_GROWTH: usize = 4;
/// Longest body in one piece that is copied, in bytes: it may be a small slice of a large read
/// buffer, which it would keep in memory.
const COPIED_BYTES_MAX: usize = 1 << 10;
/// Interval at which a body without progress checks if memory is full.
const MEMORY_LOOK: Duration = Duration::from_secs(1);

/// Complete body in memory.
#[derive(Debug)]
pub struct Buffered {
    /// The whole body.
    pub bytes: Bytes,
    /// Time waited for the whole body.
    pub wait: Duration,
    /// Memory reservation; to be kept as long as the bytes are.
    pub reservation: Option<BodyReservation>,
}

/// Reads a body to its end. A body in one piece is not copied; a longer one is gathered once.
///
/// # Errors
/// Returns an error if the body is too large, too slow or incomplete, or if memory for bodies is
/// used up, in all or by `holder`.
pub async fn buffer(
    door: &Arc<FrontDoor>,
    holder: Option<BodyHolder>,
    mut body: WireBody,
) -> Result<Buffered, GatewayError> {
    let limits = door.limits();
    let started = coarse_clock::now();
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut reservation = BodyReservation::new(door, holder);
    let mut gathered = Gathered::default();
    let mut pace = UploadPace::new(limits.stall_timeout_ms.duration());
    let mut due = pace.due(started.into());
    while let Some(frame) = next_frame(&mut body, due, &reservation).await.transpose() {
        let frame = match frame {
            Ok(frame) => frame,
            Err(IntakeStopped::Broken(error)) => return Err(broken(&error)),
            Err(IntakeStopped::TooSlow) => return Err(pace.too_slow()),
            Err(IntakeStopped::NoRoom(no_room)) => {
                // Freed first: the discarded rest needs none of this memory.
                drop((gathered, reservation));
                return Err(refuse_rest(body, no_room).await);
            }
        };
        // Trailers of a request have no meaning in any protocol spoken here.
        let Ok(piece) = frame.into_data() else { continue };
        let whole = gathered.len() + piece.len();
        if let Err(error) = refuse_oversize(whole as u64, limits.body_bytes_max) {
            discard(body).await;
            return Err(error);
        }
        // Reserved before the allocation, so that no memory goes uncounted.
        let held = gathered.held_with(piece.len(), announced);
        if let Err(no_room) = reservation.grow_to(held as u64) {
            drop((gathered, piece, reservation));
            return Err(refuse_rest(body, no_room).await);
        }
        let bytes = piece.len();
        gathered.add(piece, held);
        if body.is_end_stream() {
            break;
        }
        let now = Moment::now();
        pace.came(bytes, || now);
        due = pace.due(now);
    }
    let bytes = gathered.into_bytes();
    Ok(Buffered { bytes, wait: coarse_clock::since(started), reservation: Some(reservation) })
}

/// Reasons to stop waiting for the next piece of a body.
#[derive(Debug)]
enum IntakeStopped {
    Broken(WireError),
    TooSlow,
    NoRoom(NoRoom),
}

/// Waits for the next frame until `due`, or until memory is full.
async fn next_frame(
    body: &mut WireBody,
    due: Moment,
    reservation: &BodyReservation,
) -> Result<Option<Frame<Bytes>>, IntakeStopped> {
    loop {
        let look = due.min(Moment::now() + MEMORY_LOOK);
        match timeout_at(look, body.frame()).await {
            Ok(next) => return next.transpose().map_err(IntakeStopped::Broken),
            Err(_) if look == due => return Err(IntakeStopped::TooSlow),
            Err(_) => reservation.check().map_err(IntakeStopped::NoRoom)?,
        }
    }
}

/// Ends a body that there is no memory for, so that its client can read the error.
async fn refuse_rest(body: WireBody, no_room: NoRoom) -> GatewayError {
    discard(body).await;
    no_memory(no_room)
}

/// Refuses a body whose announced length exceeds `bytes_max`, before anything of it is read.
///
/// # Errors
/// Returns an error if the body is refused.
pub async fn refuse_announced(
    body: WireBody,
    headers: &HeaderMap,
    bytes_max: u64,
) -> Result<WireBody, GatewayError> {
    let Err(error) = refuse_oversize(body.size_hint().lower(), bytes_max) else {
        return Ok(body);
    };
    // A client that waits for 100 Continue sends nothing, and reading would make it send.
    if !headers.contains_key(header::EXPECT) {
        discard(body).await;
    }
    Err(error)
}

/// Lets a refused client finish sending, within limits, so that its connection can be kept and it
/// sees the error even if it reads nothing before its last byte.
pub async fn discard(mut body: WireBody) {
    let reading = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, |piece| piece.len() as u64);
            if bytes > DISCARDED_BYTES_MAX || body.is_end_stream() {
                break;
            }
        }
    };
    drop(timeout(DISCARD_TIME_MAX, reading).await);
}

/// Pieces of a body: the first is kept as it is until a second comes, then all are copied into one
/// buffer, so that tiny pieces cost no more than their bytes.
#[derive(Debug, Default)]
enum Gathered {
    #[default]
    Nothing,
    One(Bytes),
    Many(Vec<u8>),
}

impl Gathered {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(bytes) => bytes.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    /// Returns the bytes of memory held once a piece of `piece` bytes is added to a body that
    /// announced `announced` bytes. A buffer grows in steps, but never beyond the announced length.
    fn held_with(&self, piece: usize, announced: usize) -> usize {
        let there = self.len() + piece;
        match self {
            Self::Nothing => there,
            Self::One(_) => announced.min(FIRST_ROOM_MAX).min(there * ROOM_FACTOR).max(there),
            Self::Many(bytes) if there <= bytes.capacity() => bytes.capacity(),
            Self::Many(bytes) if there <= announced => {
                bytes.capacity().saturating_mul(ANNOUNCED_GROWTH).min(announced).max(there)
            }
            Self::Many(bytes) => bytes.capacity().saturating_mul(2).max(there),
        }
    }

    /// Adds a piece; `held` is the result of [`Gathered::held_with`].
    fn add(&mut self, piece: Bytes, held: usize) {
        *self = match std::mem::take(self) {
            Self::Nothing if piece.len() <= COPIED_BYTES_MAX => {
                Self::One(Bytes::copy_from_slice(&piece))
            }
            Self::Nothing => Self::One(piece),
            Self::One(first) => {
                let mut all = Vec::with_capacity(held);
                all.extend_from_slice(&first);
                all.extend_from_slice(&piece);
                Self::Many(all)
            }
            Self::Many(mut all) => {
                // Exactly what was reserved: a vector's own growth would go uncounted.
                all.reserve_exact(held - all.len());
                all.extend_from_slice(&piece);
                Self::Many(all)
            }
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes.into(),
        }
    }
}

fn broken(error: &WireError) -> GatewayError {
    GatewayError::new(ErrorKind::BadRequest, format!("the request body is broken: {error}"))
}

fn no_memory(no_room: NoRoom) -> GatewayError {
    let (kind, message) = match no_room {
        NoRoom::All => {
            (ErrorKind::Overloaded, "this node holds all the request bodies it may; try again")
        }
        NoRoom::Client => (
            ErrorKind::RateLimited,
            "this node holds as many of this client's request bodies as it may; wait for replies",
        ),
    };
    GatewayError::new(kind, message).with_shed(ShedReason::Memory.name())
}

#[cfg(test)]
mod tests {
    use spillway_prefix::{PrefixConfig, PrefixHasher};
    use spillway_transport::Limits;
    use spillway_types::Millis;

    use super::*;
    use crate::test_around::{Pieces, run};

    fn gather(pieces: impl Iterator<Item = usize>, announced: usize) -> (usize, usize) {
        let mut gathered = Gathered::default();
        let mut held = 0;
        for piece in pieces {
            held = gathered.held_with(piece, announced);
            gathered.add(Bytes::from(vec![7; piece]), held);
            if let Gathered::Many(bytes) = &gathered {
                assert!(bytes.capacity() <= held, "{} of {held}", bytes.capacity());
            }
        }
        (held, gathered.into_bytes().len())
    }

    #[test]
    fn tiny_pieces_hold_no_more_than_twice_their_bytes() {
        let (held, length) = gather(std::iter::repeat_n(1, 100_000), 0);
        assert_eq!(length, 100_000);
        assert!(held < 200_000, "{held}");
    }

    #[test]
    fn an_announced_body_holds_just_its_length() {
        for pieces in [vec![16 << 10; 64], vec![1000; 1049]] {
            let whole: usize = pieces.iter().sum();
            assert_eq!(gather(pieces.into_iter(), whole), (whole, whole));
        }
    }

    #[test]
    fn what_is_announced_and_not_sent_is_not_held() {
        let (held, _) = gather([10, 10].into_iter(), 32 << 20);
        assert_eq!(held, 160);
    }

    fn door(limits: Limits) -> Arc<FrontDoor> {
        Arc::new(FrontDoor::new(limits))
    }

    fn zeros(bytes: usize) -> Bytes {
        Bytes::from(vec![0; bytes])
    }

    fn read(door: &Arc<FrontDoor>, body: Pieces) -> Result<Buffered, ErrorKind> {
        run(buffer(door, None, body.wire())).map_err(|error| error.kind)
    }

    #[test]
    fn a_body_is_read_whole_however_it_is_cut() {
        let whole: Vec<u8> = (0..10_000_u32).map(|number| number as u8).collect();
        let whole = Bytes::from(whole);
        for size in [1, 7, 1_024, 1_025, 9_999, 10_000] {
            for announces in [true, false] {
                let pieces = Pieces::of(whole.chunks(size).map(Bytes::copy_from_slice));
                let pieces = if announces { pieces } else { pieces.unannounced() };
                let door = door(Limits::default());
                let found = read(&door, pieces).unwrap();
                assert!(found.bytes == whole, "pieces of {size}");
                assert!(door.body_bytes() >= 10_000, "what is held is counted");
                drop(found);
                assert_eq!(door.body_bytes(), 0, "and released");
            }
        }
        let empty = read(&door(Limits::default()), Pieces::of([])).unwrap();
        assert!(empty.bytes.is_empty());
    }

    #[test]
    fn a_body_that_is_too_long_is_refused_at_the_byte_that_is_too_much() {
        let limits = Limits { body_bytes_max: 100, ..Limits::default() };
        for (pieces, is_read) in [
            (Pieces::of([zeros(100)]), true),
            (Pieces::of([zeros(99), zeros(1)]).unannounced(), true),
            (Pieces::of([zeros(101)]), false),
            (Pieces::of([zeros(100), zeros(1)]).unannounced(), false),
        ] {
            let door = door(limits.clone());
            let found = read(&door, pieces).map(|_| ());
            assert_eq!(found, if is_read { Ok(()) } else { Err(ErrorKind::BodyTooLarge) });
            assert_eq!(door.body_bytes(), 0);
        }
    }

    #[test]
    fn an_announced_length_is_refused_before_the_body_is_read() {
        let refuse = |announced, expects: bool| {
            let mut headers = HeaderMap::new();
            if expects {
                headers.insert(header::EXPECT, header::HeaderValue::from_static("100-continue"));
            }
            let body = Pieces::of([zeros(10)]).announcing(announced).wire();
            run(refuse_announced(body, &headers, 100)).map(drop).map_err(|error| error.kind)
        };
        for expects in [true, false] {
            assert_eq!(refuse(100, expects), Ok(()));
            assert_eq!(refuse(101, expects), Err(ErrorKind::BodyTooLarge));
            assert_eq!(refuse(u64::MAX, expects), Err(ErrorKind::BodyTooLarge));
        }
    }

    #[test]
    fn a_body_that_pauses_for_longer_than_a_stall_is_given_up() {
        let limits = Limits { stall_timeout_ms: Millis(10_000), ..Limits::default() };
        let pieces = || Pieces::of([zeros(50_000), zeros(50_000)]).unannounced();
        assert!(read(&door(limits.clone()), pieces().each_after_s(9)).is_ok());
        let late = read(&door(limits), pieces().each_after_s(11)).map(|_| ());
        assert_eq!(late, Err(ErrorKind::BodyTimeout));
    }

    #[test]
    fn a_body_that_trickles_is_as_late_as_one_that_pauses() {
        let limits = Limits { stall_timeout_ms: Millis(10_000), ..Limits::default() };
        let trickle = Pieces::of((0..1_000).map(|_| zeros(10))).unannounced().each_after_s(1);
        assert_eq!(read(&door(limits), trickle).map(|_| ()), Err(ErrorKind::BodyTimeout));
    }

    #[test]
    fn bodies_beyond_the_memory_for_all_are_refused_until_others_end() {
        let limits = Limits { body_bytes_total_max: 1 << 20, ..Limits::default() };
        let door = door(limits);
        let body = || Pieces::of([zeros(600 << 10)]);
        let first = read(&door, body()).unwrap();
        let refused = run(buffer(&door, None, body().wire())).unwrap_err();
        assert_eq!((refused.kind, refused.shed), (ErrorKind::Overloaded, Some("memory")));
        // A part of the memory is left for short bodies.
        assert!(read(&door, Pieces::of([zeros(60 << 10)])).is_ok());
        drop(first);
        assert_eq!(door.body_bytes(), 0, "refused bodies hold nothing");
        assert!(read(&door, body()).is_ok());
    }

    #[test]
    fn one_client_fills_no_more_than_its_part_of_the_memory() {
        let limits = Limits { body_bytes_total_max: 1 << 20, ..Limits::default() };
        let door = door(limits);
        let hasher = PrefixHasher::new([1; 4], PrefixConfig::default()).unwrap();
        let holder = |last: u8| Some(door.body_holder([192, 0, 2, last].into(), &hasher));
        let read = |last, bytes| {
            run(buffer(&door, holder(last), Pieces::of([zeros(bytes)]).wire()))
                .map_err(|error| (error.kind, error.shed))
        };
        // Its only body may be larger than the part.
        let held = read(1, 300 << 10).unwrap();
        let refused = read(1, 10 << 10).map(|_| ());
        assert_eq!(refused, Err((ErrorKind::RateLimited, Some("memory"))));
        assert!(read(2, 10 << 10).is_ok(), "another client has its own");
        drop(held);
        assert!(read(1, 10 << 10).is_ok());
    }
}
