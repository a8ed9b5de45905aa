//! Concurrency limit against a model of an engine.

use super::test_engine::{Engine, at, best, chat, large, run, small};
use super::{ConcurrencyLimit, ConcurrencyTuning, GuestLack, LoadSample, QueueSample};

fn silent(engine: Engine) -> Engine {
    Engine { report_every_ms: None, ..engine }
}

fn all() -> [(&'static str, Engine); 6] {
    [
        ("chat", chat()),
        ("small", small()),
        ("large", large()),
        ("silent chat", silent(chat())),
        ("silent small", silent(small())),
        ("silent large", silent(large())),
    ]
}

fn told(in_flight: u32, queued: f32, running: f32) -> LoadSample {
    let queue = QueueSample::New { queued, running: Some(running), kv_use: None };
    LoadSample { in_flight, allowed: u32::MAX, queue, ..LoadSample::default() }
}

fn from(start: u32) -> ConcurrencyLimit {
    ConcurrencyLimit::new(ConcurrencyTuning { start, ..ConcurrencyTuning::default() })
}

#[test]
fn it_keeps_replicas_as_busy_as_they_can_be_and_the_queue_out_of_them() {
    for (name, engine) in all() {
        let found = run(&engine, 200);
        let (ended, most) = (found.ended(30..200), best(&engine));
        assert!(ended >= 0.95 * most, "{name}: {ended} of {most}, {:?}", found.limits);
        let queued = found.queued(30..200);
        let allowed = match engine.report_every_ms {
            Some(_) => 0.25 * engine.slots as f64,
            // As many as make the first token eight times as late, plus a few.
            None => 9.0 * engine.slots as f64,
        };
        assert!(queued <= allowed.max(2.0), "{name}: {queued} wait, {:?}", found.limits);
    }
}

#[test]
fn requests_that_wait_to_be_read_lower_no_limit_and_those_that_wait_for_room_do() {
    let after = |kv_use: Option<f32>| {
        let mut limit = from(64);
        let queue = QueueSample::New { queued: 20.0, running: Some(16.0), kv_use };
        let seen = LoadSample {
            in_flight: 36,
            allowed: u32::MAX,
            queue,
            began: 2,
            ..LoadSample::default()
        };
        (0..100).for_each(|step| {
            limit.update(&seen, at(step * 100));
        });
        limit.limit()
    };
    assert_eq!(after(Some(0.2)), 64, "as many wait as run, for their turn in a step");
    assert!(after(Some(0.95)) < 24, "{}", after(Some(0.95)));
    assert!(after(None) < 24, "what is not told may be full");
}

#[test]
#[ignore = "prints the table of docs/measured/admission.md: cargo test -p spillway-route concurrency_limit -- --ignored --nocapture"]
#[expect(clippy::print_stdout, reason = "its purpose")]
fn table() {
    for (name, engine) in all() {
        let found = run(&engine, 200);
        let share = found.ended(30..200) / best(&engine) * 100.0;
        let first = found.ended(0..5) / best(&engine) * 100.0;
        let queued = found.queued(30..200);
        println!(
            "{name}: {share:.1} %, first 5 s {first:.0} %, {queued:.1} wait, limit {}",
            found.limits[199]
        );
    }
}

#[test]
fn a_large_replica_is_busy_after_some_seconds() {
    for engine in [large(), silent(large())] {
        let (found, most) = (run(&engine, 20), best(&engine));
        let ended = found.ended(6..20);
        assert!(ended >= 0.95 * most, "{ended} of {most}: {:?}", found.limits);
    }
}

#[test]
fn a_fast_server_that_says_nothing_is_as_fast_as_without_a_limit() {
    // Five thousand requests a second, each of 50 ms.
    let fast = Engine { slots: 10_000, halving: 1e9, alone_ms: 50, first_token_ms: 50, ..chat() };
    let fast = Engine { wanted: |_, _| 250, ..silent(fast) };
    for nodes in [1, 4] {
        let fast = Engine { nodes, ..fast };
        let (found, free) = (run(&fast, 60), run(&Engine { limit: Some(1_000), ..fast }, 60));
        let (ended, most) = (found.ended(0..60), free.ended(0..60));
        assert!(ended >= 0.98 * most, "{nodes}: {ended} of {most}: {:?}", found.limits);
    }
}

#[test]
fn it_is_there_again_soon_after_a_slow_phase() {
    for (name, engine) in all() {
        let engine = Engine { slow: Some((60, 90, 4.0)), ..engine };
        let found = run(&engine, 160);
        let (before, after) = (found.ended(30..60), found.ended(110..160));
        assert!(after >= 0.94 * before, "{name}: {before}, then {after}: {:?}", found.limits);
    }
}

#[test]
fn requests_that_take_longer_for_themselves_are_no_queue() {
    // A server that accepts everything, and gets twenty times as much work from a certain moment
    // on.
    let engine = Engine {
        slots: 10_000,
        halving: 1e9,
        alone_ms: 100,
        first_token_ms: 100,
        slow: Some((30, 600, 20.0)),
        wanted: |_, _| 30,
        ..silent(chat())
    };
    let found = run(&engine, 600);
    let limited = found.ended(60..600);
    let free = run(&Engine { limit: Some(30), ..engine }, 600).ended(60..600);
    assert!(limited >= 0.95 * free, "{limited} of {free}: {:?}", found.limits);
}

#[test]
fn long_replies_that_have_all_begun_keep_nobody_away() {
    // Streams that never end: no reply begins any more, and no request waits either.
    let mut limit = from(32);
    let mut in_flight = 0;
    for step in 0..20 {
        in_flight = limit.limit();
        let seen = LoadSample { in_flight, allowed: u32::MAX, ..LoadSample::default() };
        limit.update(&seen, at(step * 1_000));
    }
    assert!(in_flight >= 1_000, "{in_flight}");
}

#[test]
fn a_replica_that_answers_nothing_is_not_given_more() {
    let mut limit = from(32);
    for step in 0..200 {
        let unbegun = limit.limit();
        let seen =
            LoadSample { in_flight: unbegun, unbegun, allowed: u32::MAX, ..LoadSample::default() };
        assert_eq!(limit.update(&seen, at(step * 100)), 32);
    }
}

#[test]
fn what_it_is_not_asked_for_does_not_change_it() {
    let mut limit = from(32);
    for step in 0..1_000 {
        let seen = LoadSample { began: 3, first_token: Some(100.0), ..told(3, 0.0, 3.0) };
        assert_eq!(limit.update(&seen, at(step * 100)), 32);
        assert!(!limit.is_found());
    }
}

#[test]
fn a_report_counts_once() {
    let mut limit = from(32);
    assert_eq!(limit.update(&told(32, 0.0, 32.0), at(0)), 64);
    for step in 1..100 {
        let seen = LoadSample { queue: QueueSample::Old, ..told(64, 0.0, 0.0) };
        assert_eq!(limit.update(&seen, at(step * 100)), 64);
    }
    assert_eq!(limit.update(&told(64, 0.0, 64.0), at(10_000)), 128);
}

#[test]
fn it_doubles_until_something_waits_and_is_careful_from_then_on() {
    let mut limit = from(32);
    let full = |limit: &ConcurrencyLimit| told(limit.limit(), 0.0, limit.limit() as f32);
    let mut doubled = Vec::new();
    for step in 0..3 {
        let seen = full(&limit);
        doubled.push(limit.update(&seen, at(step * 300)));
    }
    assert_eq!(doubled, [64, 128, 256]);
    assert!(!limit.is_found());
    for step in 0..10 {
        assert_eq!(limit.update(&told(256, 160.0, 96.0), at(1_000 + step * 100)), 256, "a burst");
    }
    assert_eq!(limit.update(&told(256, 160.0, 96.0), at(2_000)), 128, "not less than half at once");
    assert_eq!(limit.update(&told(128, 32.0, 96.0), at(3_100)), 105);
    assert!(limit.is_found());
    assert_eq!(
        limit.update(&told(105, 0.0, 96.0), at(4_200)),
        105,
        "the smoothed queue is long yet"
    );
    let mut raised = Vec::new();
    for step in 0..40 {
        let seen = told(limit.limit(), 0.0, 96.0);
        raised.push(limit.update(&seen, at(4_300 + step * 100)));
    }
    let growth: Vec<f32> = raised
        .windows(2)
        .map(|pair| pair[1] as f32 / pair[0] as f32)
        .filter(|&by| by > 1.0)
        .collect();
    assert!(growth[0] < 1.07 && growth.iter().all(|&by| by <= 1.26), "{growth:?}");
    assert!(growth.last().unwrap() > &1.2, "{growth:?}");
}

#[test]
fn what_others_send_is_shared_with_them() {
    let mut limit = from(32);
    // Half of the requests there are of this region, and half of those wait.
    let seen = LoadSample { in_flight: 20, elsewhere: 12, ..told(0, 32.0, 32.0) };
    (0..50).for_each(|step| {
        limit.update(&seen, at(step * 100));
    });
    assert_eq!(limit.limit(), 17);
}

#[test]
fn a_queue_never_raises_it_beyond_what_is_worked_on() {
    let mut limit = from(64);
    // More requests are there than the limit allows, and most of them run.
    let mut update = |step: u64| limit.update(&told(80, 20.0, 60.0), at(step * 100));
    (0..10).for_each(|step| assert_eq!(update(step), 64));
    (10..50).for_each(|step| assert_eq!(update(step), 64, "{step}"));
}

#[test]
fn where_the_replica_is_full_it_is_not_far_above_what_is_there() {
    // Other nodes hold requests back, and this one could use all the slots that they leave.
    let kept_away = LoadSample { elsewhere: 4, wanted_elsewhere: 30, ..told(16, 3.0, 17.0) };
    let calm = LoadSample { wanted_elsewhere: 4, ..kept_away };
    let after = |seen: &LoadSample, looks: u64| {
        let mut limit = from(32);
        (0..looks).map(|step| limit.update(seen, at(step * 500))).last()
    };
    assert_eq!(after(&kept_away, 2), Some(32), "once is no queue");
    assert_eq!(after(&kept_away, 5), Some(20));
    assert_eq!(after(&calm, 1_000), Some(32), "nobody is kept away");
}

#[test]
fn what_waits_for_the_next_step_of_the_engine_does_not_change_it() {
    // Eight chats at two large replicas: of the four here, some are always about to begin.
    let mut limit = from(64);
    let mut rng = fastrand::Rng::with_seed(3);
    for step in 0..10_000 {
        let queued = rng.u8(0..4);
        let running = 4 - queued;
        let seen = LoadSample { began: 1, ..told(4, f32::from(queued), f32::from(running)) };
        assert_eq!(limit.update(&seen, at(step * 100)), 64);
        assert!(!limit.is_found());
    }
}

#[test]
fn what_others_than_this_region_queue_there_does_not_change_it() {
    let mut limit = from(64);
    (0..1_000).for_each(|step| {
        assert_eq!(limit.update(&told(0, 90.0, 10.0), at(step * 500)), 64);
    });
}

#[test]
fn a_rise_from_a_calm_time_waits_for_two_first_tokens_at_most() {
    // 80 requests at a replica that takes 256 and reports every half second: no report at the first
    // look.
    let rise = Engine { wanted: |_, second| if second < 5 { 4 } else { 80 }, ..large() };
    for engine in [rise, silent(rise)] {
        let found = run(&engine, 7);
        assert!(found.limits[4] >= 64 && found.limits[5] >= 80, "{:?}", found.limits);
        let free = run(&Engine { limit: Some(1_000), ..engine }, 30).ended(5..30);
        let ended = run(&engine, 30).ended(5..30);
        assert!(ended >= 0.99 * free, "{ended} of {free}");
    }
}

#[test]
fn what_came_late_before_it_was_lowered_lowers_it_once() {
    let mut limit = from(32);
    let mut update = |first_token: f32, (began, unbegun): (u32, u32), ms: u64| {
        let in_flight = limit.limit() - 1;
        let first_token = Some(first_token);
        let seen = LoadSample {
            in_flight,
            unbegun,
            began,
            first_token,
            allowed: u32::MAX,
            ..LoadSample::default()
        };
        limit.update(&seen, at(ms))
    };
    (0..20).for_each(|step| assert_eq!(update(10.0, (1, 20), step * 100), 32));
    let lowered = (20..60).map(|step| update(400.0, (1, 20), step * 100)).find(|&limit| limit < 32);
    assert_eq!(lowered, Some(28));
    // The waiting requests begin then, that late.
    (0..20).for_each(|step| assert_eq!(update(400.0, (1, 20), 10_000 + step * 1_100), 28));
    (0..9).for_each(|step| assert_eq!(update(400.0, (1, 20), 40_000 + step * 1_100), 28));
    assert_eq!(update(400.0, (1, 20), 60_000), 24, "those that were sent then are late too");
}

#[test]
fn those_that_were_given_up_are_not_waited_for() {
    let mut limit = from(32);
    let seen = |first_token: f32, unbegun: u32| LoadSample {
        in_flight: 31,
        allowed: u32::MAX,
        unbegun,
        began: 1,
        first_token: Some(first_token),
        ..LoadSample::default()
    };
    (0..20).for_each(|step| assert_eq!(limit.update(&seen(10.0, 30), at(step * 100)), 32));
    let mut lowered = (20..60).map(|step| limit.update(&seen(400.0, 30), at(step * 100)));
    assert_eq!(lowered.find(|&limit| limit < 32), Some(28));
    // Their clients have left: replies that begin from now on are to later requests.
    let seen = LoadSample { in_flight: 28, ..seen(400.0, 0) };
    let later = (0..12).map(|step| limit.update(&seen, at(10_000 + step * 100)));
    assert_eq!(later.min(), Some(25));
}

#[test]
fn guests_come_as_fast_as_replies_begin_while_the_limit_is_a_guess() {
    let mut limit = ConcurrencyLimit::new(ConcurrencyTuning::default());
    let begin = limit.guests_unbegun_max().unwrap();
    assert!(begin < limit.limit(), "a guess is no promise");
    let lacks = |guest_lack, began| LoadSample {
        allowed: 64,
        guest_lack,
        began,
        queue: QueueSample::New { queued: 0.0, running: Some(8.0), kv_use: None },
        ..LoadSample::default()
    };
    let mut tick = 0;
    let mut look = |limit: &mut ConcurrencyLimit, seen: &LoadSample| {
        tick += 100;
        limit.update(seen, at(tick));
        limit.guests_unbegun_max().unwrap()
    };
    assert_eq!(look(&mut limit, &lacks(Some(GuestLack::Pace), 0)), begin, "nothing has begun");
    assert_eq!(look(&mut limit, &lacks(Some(GuestLack::Pace), 6)), begin + 6);
    // Without refused guests it goes back, in seconds.
    let after = (0..100).map(|_| look(&mut limit, &lacks(None, 6))).last().unwrap();
    assert!(after <= begin + 1, "{after}");
    assert_eq!(limit.limit(), 64, "the limit itself was not needed");
}

#[test]
fn a_guess_grows_while_guests_fill_it_up_to_the_reserve() {
    let mut limit = ConcurrencyLimit::new(ConcurrencyTuning::default());
    let sample = |guest_lack| LoadSample {
        in_flight: 57,
        allowed: 64,
        guest_lack,
        began: 20,
        queue: QueueSample::New { queued: 0.0, running: Some(57.0), kv_use: None },
        ..LoadSample::default()
    };
    assert_eq!(limit.update(&sample(None), at(100)), 64);
    assert!(limit.update(&sample(Some(GuestLack::Reserve)), at(200)) >= 84);
}

#[test]
fn it_stays_within_its_bounds_whatever_is_reported() {
    let tuning = ConcurrencyTuning { min: 3, max: 20, ..ConcurrencyTuning::default() };
    let mut limit = ConcurrencyLimit::new(tuning);
    assert_eq!(limit.limit(), 20);
    let numbers = [0.0, -1.0, 1.0, 1e9, f32::INFINITY, f32::NAN];
    let mut rng = fastrand::Rng::with_seed(1);
    let mut number = || numbers[rng.usize(..numbers.len())];
    for step in 0..5_000 {
        let seen = LoadSample {
            in_flight: number() as u32,
            elsewhere: number() as u32,
            wanted_elsewhere: number() as u32,
            allowed: number() as u32,
            unbegun: number() as u32,
            guest_lack: [None, Some(GuestLack::Reserve), Some(GuestLack::Pace)][step as usize % 3],
            queue: match step % 3 {
                0 => QueueSample::Untold,
                1 => QueueSample::Old,
                _ => QueueSample::New {
                    queued: number(),
                    running: (step % 2 > 0).then(&mut number),
                    kv_use: (step % 3 > 0).then(&mut number),
                },
            },
            began: number() as u32,
            first_token: (step % 5 > 0).then(&mut number),
        };
        let now = limit.update(&seen, at(step * 60));
        assert!((3..=20).contains(&now), "{step}: {now}");
    }
}
