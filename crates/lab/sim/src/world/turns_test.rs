use super::test_listener::{listen, serve};
use super::world_test::{config, session};
use crate::{Figures, RouterVerdict};

/// Runs one session whose turns follow the turns given, each thought about for a second.
fn run(after: &[Option<usize>], fails: bool) -> Figures {
    let prompts: Vec<(u64, u32)> = (0..after.len() as u64).map(|id| (id, 100)).collect();
    let mut asked = session(1.0, 0, &prompts);
    for (turn, &after) in asked.turns.iter_mut().zip(after) {
        turn.after = after;
    }
    let shed = |request: usize, _, _| {
        if request == 0 { RouterVerdict::Shed(None) } else { serve(0) }
    };
    listen(&config(&[(1, 1)]), vec![asked], if fails { shed } else { |_, _, _| serve(0) }).0
}

/// Returns the seconds at which requests came and ended.
fn times(figures: &Figures) -> Vec<(f64, f64)> {
    let ended_s = |ms: Option<f64>| ms.unwrap_or(0.0) / 1e3;
    figures
        .records
        .iter()
        .map(|one| (one.arrived_s, one.arrived_s + ended_s(one.ended_ms)))
        .collect()
}

#[test]
fn several_turns_follow_one_and_a_new_task_waits_for_all_of_the_last_one() {
    // A root, its two children, a child of the first of them, and then the next task.
    let figures = run(&[None, Some(0), Some(0), Some(1), None, Some(4)], false);
    let times = times(&figures);
    assert_eq!((times.len(), figures.failed), (6, 0));
    let thought = |after: f64, at: f64| (at - after - 1.0).abs() < 0.001;
    assert!(thought(times[0].1, times[1].0) && thought(times[0].1, times[2].0), "{times:?}");
    assert!(thought(times[1].1, times[3].0), "{times:?}");
    assert!(times[3].1 > times[2].1 && thought(times[3].1, times[4].0), "{times:?}");
    assert!(thought(times[4].1, times[5].0), "{times:?}");
}

#[test]
fn a_client_goes_on_after_a_failure_as_after_a_reply() {
    let figures = run(&[None, Some(0), Some(0), None], true);
    assert_eq!((figures.requests, figures.failed), (4, 1));
    let times = times(&figures);
    assert!((times[1].0 - 2.0).abs() < 0.001 && (times[2].0 - 2.0).abs() < 0.001, "{times:?}");
    assert!(times[3].0 > times[2].1, "{times:?}");
}
