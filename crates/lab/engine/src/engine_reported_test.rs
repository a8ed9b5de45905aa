//! Metrics as engines report them, compared with the table of docs/reference/emulator.md, which was
//! made with vLLM.

use super::engine_test::{config, micros, nonzero};
use super::*;

/// Waiting and running requests, as reported.
type Shown = (u32, u32);

fn shown(engine: &Engine) -> Shown {
    (engine.reported().waiting, engine.reported().running)
}

/// Submits `count` requests from this id on.
fn submit(engine: &mut Engine, now: Duration, first: u64, count: u64) {
    for id in (first..first + count).map(RequestId) {
        let request = EngineRequest { id, prompt_tokens: 4, output_tokens: 9, blocks: Vec::new() };
        engine.submit(now, request).unwrap();
    }
}

/// Ends the step under way, and begins the next one. Returns the time.
fn next_step(engine: &mut Engine) -> Duration {
    let now = engine.next_step_at().unwrap();
    drop(engine.step(now));
    now
}

/// Returns an engine with room for 4 requests, in the second step of so many.
fn with_running(count: u64) -> Engine {
    let mut engine = Engine::new(EngineConfig { running_max: nonzero(4), ..config(100) });
    submit(&mut engine, Duration::ZERO, 1, count);
    next_step(&mut engine);
    next_step(&mut engine);
    engine
}

#[test]
fn a_request_is_reported_once_its_first_step_has_ended() {
    let mut engine = Engine::new(config(100));
    submit(&mut engine, Duration::ZERO, 1, 1);
    assert_eq!(shown(&engine), (0, 0));
    next_step(&mut engine);
    assert_eq!(shown(&engine), (0, 0), "in its first step");
    next_step(&mut engine);
    assert_eq!(shown(&engine), (0, 1));
}

#[test]
fn a_burst_that_finds_room_never_shows_as_waiting() {
    let mut engine = with_running(1);
    submit(&mut engine, micros(1_500), 2, 3);
    assert_eq!(shown(&engine), (0, 1));
    next_step(&mut engine);
    assert_eq!(shown(&engine), (0, 1), "in their first step");
    next_step(&mut engine);
    assert_eq!(shown(&engine), (0, 4));
}

#[test]
fn requests_without_room_show_as_waiting_after_the_next_whole_step() {
    let mut engine = with_running(4);
    submit(&mut engine, micros(1_500), 5, 3);
    assert_eq!(shown(&engine), (0, 4));
    next_step(&mut engine);
    assert_eq!(shown(&engine), (0, 4), "they came during the step that is reported");
    next_step(&mut engine);
    assert_eq!(shown(&engine), (3, 4));
}

#[test]
fn ends_are_reported_before_others_take_their_places() {
    let mut engine = with_running(4);
    submit(&mut engine, micros(1_500), 5, 3);
    while engine.stats().generation_tokens < 4 * 9 {
        next_step(&mut engine);
    }
    assert_eq!(shown(&engine), (3, 0));
    next_step(&mut engine);
    assert_eq!(shown(&engine), (0, 3));
}

#[test]
fn an_abort_is_reported_at_the_end_of_the_step_under_way() {
    for (running, after) in [(2, (0, 1)), (1, (0, 0))] {
        let mut engine = with_running(running);
        assert!(engine.abort(RequestId(1)));
        assert_eq!(shown(&engine), (0, u32::try_from(running).unwrap()));
        next_step(&mut engine);
        assert_eq!(shown(&engine), after);
    }
    let mut engine = with_running(4);
    submit(&mut engine, micros(1_500), 5, 2);
    next_step(&mut engine);
    next_step(&mut engine);
    assert!(engine.abort(RequestId(5)));
    assert_eq!(shown(&engine), (2, 4));
    next_step(&mut engine);
    assert_eq!(shown(&engine), (1, 4));
}
