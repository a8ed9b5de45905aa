use super::*;

fn queues(count_max: usize) -> (Arc<WaitQueues>, WaitLimits) {
    let limits = WaitLimits { count_max, ..WaitLimits::default() };
    (Arc::new(WaitQueues::new(WaitTotals::default())), limits)
}

fn asking(limits: WaitLimits, priority: u8) -> Asking {
    let asker = Asker { priority, weight: 1, tokens: 10, bytes: 10, ..Asker::default() };
    Asking { key: WaitKey::of(&"route".into(), &"model".into()), limits, asker }
}

fn known_as(fingerprint: u64, asking: Asking) -> Asking {
    Asking { asker: Asker { fingerprint, ..asking.asker }, ..asking }
}

fn patience(after: Duration) -> Patience {
    Patience { until: Instant::now() + after, begin_by: None, turn_by: None }
}

const UNKNOWN: Foreseen<fn(f32) -> Option<f32>> =
    Foreseen { refusal: Refusal::new(ShedReason::QueueFull, 0.0), rate_per_s: |_| None };

const LONG: Duration = Duration::from_secs(60);

fn enter(queues: &Arc<WaitQueues>, limits: WaitLimits) -> Result<QueuedRequest, WaitLimit> {
    queues.enter(&asking(limits, 0), patience(LONG))
}

#[tokio::test]
async fn turns_go_in_order_and_each_wakes_one() {
    let (queues, limits) = queues(10);
    let (mut first, mut second) =
        (enter(&queues, limits).unwrap(), enter(&queues, limits).unwrap());
    assert_eq!((second.waiting().ahead, second.waiting().all), (1, 2));
    queues.wake();
    assert_eq!(first.ended().await, QueuedEnd::Turn);
    assert_eq!(queues.count(), 1);
    assert!(second.try_ended().is_none());
    queues.wake();
    assert_eq!(second.ended().await, QueuedEnd::Turn);
    assert_eq!(queues.count(), 0);
}

#[tokio::test]
async fn a_more_urgent_class_has_its_turn_first() {
    let (queues, limits) = queues(10);
    let mut late = enter(&queues, limits).unwrap();
    let mut last = queues.enter(&asking(limits, 3), patience(LONG)).unwrap();
    let mut second = queues.enter(&asking(limits, 1), patience(LONG)).unwrap();
    assert_eq!(queues.before(&asking(limits, 0), |_| None).ahead, 1);
    assert_eq!(queues.before(&asking(limits, 1), |_| None).ahead, 2);
    for turn in [&mut late, &mut second, &mut last] {
        queues.wake();
        assert_eq!(turn.ended().await, QueuedEnd::Turn);
    }
}

#[tokio::test]
async fn who_finds_no_place_in_its_turn_keeps_it() {
    let (queues, limits) = queues(10);
    let (mut first, mut second) =
        (enter(&queues, limits).unwrap(), enter(&queues, limits).unwrap());
    for _ in 0..3 {
        queues.wake();
        assert_eq!(first.ended().await, QueuedEnd::Turn);
        assert!(second.try_ended().is_none());
        let asking = asking(limits, 0);
        let again = Asking { asker: Asker { is_promised: true, ..asking.asker }, ..asking };
        let patience = Patience { turn_by: Some(first.due(Instant::now())), ..patience(LONG) };
        first = queues.enter(&again, patience).unwrap();
    }
    queues.wake();
    queues.wake();
    assert_eq!((first.ended().await, second.ended().await), (QueuedEnd::Turn, QueuedEnd::Turn));
}

#[tokio::test]
async fn a_turn_that_nobody_takes_goes_to_the_next() {
    let (queues, limits) = queues(10);
    let (first, mut second) = (enter(&queues, limits).unwrap(), enter(&queues, limits).unwrap());
    queues.wake();
    // Its client leaves before it looks.
    drop(first);
    assert_eq!(second.ended().await, QueuedEnd::Turn);
    assert_eq!(queues.count(), 0);
}

#[tokio::test]
async fn a_full_queue_takes_nobody_and_who_leaves_makes_room() {
    let (queues, limits) = queues(1);
    assert!(queues.before(&asking(limits, 0), |_| None).has_room);
    let first = enter(&queues, limits).unwrap();
    assert_eq!(enter(&queues, limits).unwrap_err(), WaitLimit::Count);
    let before = queues.before(&asking(limits, 0), |_| None);
    assert_eq!((before.ahead, before.all, before.has_room), (1, 1, false));
    drop(first);
    assert_eq!(queues.count(), 0);
    drop(enter(&queues, limits).unwrap());
}

#[tokio::test]
async fn who_is_pushed_out_by_a_more_urgent_one_is_told_when_to_come_again() {
    let (queues, limits) = queues(1);
    let mut last = queues.enter(&asking(limits, 3), patience(LONG)).unwrap();
    let first = enter(&queues, limits).unwrap();
    let told = last.ended().await;
    let QueuedEnd::Shed(ShedReason::PushedOut, retry_after) = told else { panic!("{told:?}") };
    assert!((1..=60).contains(&retry_after.as_secs()), "{retry_after:?}");
    assert_eq!(queues.count(), 1);
    drop((first, last));
    assert_eq!((queues.count(), queues.bytes.load(Ordering::Relaxed)), (0, 0));
}

#[tokio::test]
async fn who_can_no_longer_make_it_is_taken_out_early() {
    let (queues, limits) = queues(10);
    let mut missed = {
        let begin_by = Some(Instant::now());
        let patience = Patience { begin_by, ..patience(LONG) };
        queues.enter(&asking(limits, 0), patience).unwrap()
    };
    let mut other = enter(&queues, limits).unwrap();
    queues.review();
    let told = missed.ended().await;
    assert!(matches!(told, QueuedEnd::Shed(ShedReason::Slo, _)), "{told:?}");
    // And its slot did not cost the one behind it the turn.
    assert_eq!(other.ended().await, QueuedEnd::Turn);
}

#[tokio::test]
async fn all_queues_together_have_bounds_too() {
    let totals = WaitTotals { count_max: 2, bytes_max: 25 };
    let queues = Arc::new(WaitQueues::new(totals));
    let limits = WaitLimits::default();
    let other = |route: &str| Asking {
        key: WaitKey::of(&route.into(), &"model".into()),
        ..asking(limits, 0)
    };
    let enter = |route| queues.enter(&other(route), patience(LONG));
    let first = enter("a").unwrap();
    let mut big = other("b");
    big.asker.bytes = 16;
    assert_eq!(queues.enter(&big, patience(LONG)).unwrap_err(), WaitLimit::Bytes);
    assert!(!queues.before(&big, |_| None).has_room);
    let second = enter("b").unwrap();
    assert_eq!(enter("c").unwrap_err(), WaitLimit::Count);
    assert!(!queues.before(&other("c"), |_| None).has_room);
    drop((first, second));
    assert!(enter("c").is_ok());
}

#[tokio::test]
async fn who_comes_back_as_asked_is_let_in_where_newcomers_are_not() {
    let (queues, limits) = queues(1);
    let waits = enter(&queues, limits).unwrap();
    let mut dice = fastrand::Rng::with_seed(3);
    // Ends come at a steady rate, so that a slot can be foreseen.
    for _ in 0..50 {
        queues.began(&asking(limits, 0));
    }
    let seconds = queues.shed(&known_as(42, asking(limits, 0)), UNKNOWN, &mut dice);
    assert!((1..=60).contains(&seconds));
    assert!(!queues.redeem(&known_as(41, asking(limits, 0))), "nobody else's promise");
    drop(waits);
}
