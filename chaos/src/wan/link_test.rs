use super::*;

const PACKETS: u64 = 100_000;
const MS: u64 = 1_000_000;

/// Returns the fates of `count` packets of 1,000 bytes, `gap_ns` apart.
fn fates(shape: Shape, count: u64, gap_ns: u64) -> (WanLink, Vec<PacketFate>) {
    let mut link = WanLink::new(shape);
    let mut rng = Rng::with_seed(3);
    let fates = (0..count).map(|n| link.take(n * gap_ns, 1_000, &mut rng)).collect();
    (link, fates)
}

fn due(fate: &PacketFate) -> Option<u64> {
    match fate {
        PacketFate::Arrives { due_ns, .. } => Some(*due_ns),
        PacketFate::Gone => None,
    }
}

#[test]
fn a_plain_link_adds_its_delay_and_nothing_else() {
    let (link, fates) = fates(Shape { delay_ns: 40 * MS, ..Shape::default() }, 100, MS);
    for (n, fate) in (0..).zip(&fates) {
        let expected =
            PacketFate::Arrives { due_ns: n * MS + 40 * MS, copies: 1, is_corrupt: false };
        assert_eq!(*fate, expected);
    }
    assert_eq!(link.counts, LinkCounts { offered: 100, ..LinkCounts::default() });
}

#[test]
fn a_cut_link_passes_nothing_and_an_open_one_everything() {
    let (mut link, _) = fates(Shape::default(), 0, MS);
    let mut rng = Rng::with_seed(3);
    link.passage = Passage::Cut;
    assert!((0..1_000).all(|n| link.take(n, 100, &mut rng) == PacketFate::Gone));
    link.passage = Passage::Open;
    assert!((0..1_000).all(|n| link.take(n, 100, &mut rng) != PacketFate::Gone));
    assert_eq!((link.counts.offered, link.counts.cut), (2_000, 1_000));
}

#[test]
fn independent_loss_has_its_share_and_no_memory() {
    let (link, fates) = fates(Shape { loss: 0.05, ..Shape::default() }, PACKETS, MS);
    // Five standard deviations of a binomial count: 345.
    assert!(link.counts.lost.abs_diff(5_000) < 345, "{}", link.counts.lost);
    let pairs = fates.windows(2).filter(|pair| pair.iter().all(|fate| due(fate).is_none())).count();
    assert!(pairs.abs_diff(250) < 80, "{pairs}");
}

#[test]
fn loss_in_bursts_has_its_share_and_its_length() {
    let shape = Shape { loss: 0.05, loss_burst: 8.0, ..Shape::default() };
    let (link, fates) = fates(shape, 4 * PACKETS, MS);
    let lost = link.counts.lost as f64;
    assert!((lost / (4 * PACKETS) as f64 - 0.05).abs() < 0.005, "{lost}");
    let starts =
        fates.windows(2).filter(|pair| due(&pair[0]).is_some() && due(&pair[1]).is_none()).count();
    let mean = lost / starts as f64;
    assert!((mean - 8.0).abs() < 0.8, "{mean}");
}

#[test]
fn heavy_loss_in_bursts_has_its_share_too() {
    let shape = Shape { loss: 0.4, loss_burst: 5.0, ..Shape::default() };
    let (link, _) = fates(shape, 4 * PACKETS, MS);
    let share = link.counts.lost as f64 / (4 * PACKETS) as f64;
    assert!((share - 0.4).abs() < 0.02, "{share}");
}

#[test]
fn packets_keep_their_order_even_when_jitter_falls_faster_than_they_come() {
    let shape =
        Shape { delay_ns: 40 * MS, jitter_ns: 10 * MS, jitter_period_ns: MS, ..Shape::default() };
    let (_, fates) = fates(shape, 10_000, MS / 10);
    let dues: Vec<u64> = fates.iter().filter_map(due).collect();
    assert!(dues.is_sorted());
}

#[test]
fn all_is_lost_at_a_hundred_percent_and_nothing_at_zero() {
    assert_eq!(fates(Shape { loss: 1.0, ..Shape::default() }, 1_000, MS).0.counts.lost, 1_000);
    let bursts = Shape { loss: 1.0, loss_burst: 8.0, ..Shape::default() };
    assert_eq!(fates(bursts, 1_000, MS).0.counts.lost, 1_000);
    assert_eq!(fates(Shape::default(), 1_000, MS).0.counts.lost, 0);
}

#[test]
fn jitter_keeps_order_and_the_median_delay() {
    let shape = Shape { delay_ns: 40 * MS, jitter_ns: 2 * MS, ..Shape::default() };
    let (_, fates) = fates(shape, PACKETS, MS / 10);
    let dues: Vec<u64> = fates.iter().filter_map(due).collect();
    assert!(dues.is_sorted());
    let mut delays: Vec<u64> =
        dues.iter().zip(0..).map(|(due_ns, n)| due_ns - n * MS / 10).collect();
    delays.sort_unstable();
    let median = delays[delays.len() / 2];
    assert!(median.abs_diff(40 * MS) < MS / 2, "{median}");
    let spread = delays[delays.len() * 84 / 100] - delays[delays.len() * 16 / 100];
    // Two deviations at the points, less on the lines between them.
    assert!((2 * MS..5 * MS).contains(&spread), "{spread}");
}

#[test]
fn a_reordered_packet_is_late_and_holds_up_no_other() {
    let shape = Shape { delay_ns: MS, reorder: 0.1, reorder_by_ns: 5 * MS, ..Shape::default() };
    let (link, fates) = fates(shape, 10_000, MS);
    let late: Vec<u64> = (0..)
        .zip(fates.iter().filter_map(due))
        .filter_map(|(n, due_ns)| (due_ns != n * MS + MS).then_some(due_ns - n * MS))
        .collect();
    assert!(late.iter().all(|delay_ns| *delay_ns == 6 * MS), "{late:?}");
    assert_eq!(late.len() as u64, link.counts.reordered);
    assert!(link.counts.reordered.abs_diff(1_000) < 150);
}

#[test]
fn a_rate_spaces_packets_and_its_queue_has_an_end() {
    // 1,000 bytes at 1 MB/s take 1 ms; the queue holds ten packets.
    let shape = Shape { rate_bytes: Some(1_000_000), queue_bytes_max: 10_000, ..Shape::default() };
    let (link, at_once) = fates(shape, 15, 0);
    let dues: Vec<u64> = at_once.iter().filter_map(due).collect();
    assert_eq!(dues, (1..=10).map(|n| n * MS).collect::<Vec<_>>());
    assert_eq!(link.counts.queue_full, 5);
    let (link, _) = fates(shape, 1_000, MS);
    assert_eq!(link.counts.queue_full, 0);
    let (link, _) = fates(shape, 10_000, MS / 2);
    assert!(link.counts.queue_full.abs_diff(5_000) <= 10, "{}", link.counts.queue_full);
}

#[test]
fn copies_and_flipped_bits_have_their_share() {
    let shape = Shape { duplicate: 0.02, corrupt: 0.01, ..Shape::default() };
    let (link, fates) = fates(shape, PACKETS, MS);
    assert!(link.counts.duplicated.abs_diff(2_000) < 225, "{}", link.counts.duplicated);
    assert!(link.counts.corrupted.abs_diff(1_000) < 160, "{}", link.counts.corrupted);
    let twice =
        fates.iter().filter(|fate| matches!(fate, PacketFate::Arrives { copies: 2, .. })).count();
    assert_eq!(twice as u64, link.counts.duplicated);
}

#[test]
fn a_shorter_way_is_not_held_up_by_the_longer_one_before() {
    let (mut link, _) = fates(Shape { delay_ns: 1_000 * MS, ..Shape::default() }, 10, MS);
    link.reshape(Shape { delay_ns: MS, ..Shape::default() });
    let fate = link.take(20 * MS, 100, &mut Rng::with_seed(1));
    assert_eq!(due(&fate), Some(21 * MS));
}
