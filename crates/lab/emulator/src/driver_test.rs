use spillway_engine::{Profile, StepCost};

use super::*;

/// Returns a driver on tokio's paused clock. A step takes 10 ms, a prompt token 1 ms.
fn driver(time_scale: f64) -> (Arc<Driver>, tokio_util::sync::DropGuard) {
    let cost = StepCost {
        base_ns: 10_000_000,
        prefill_token_ns: 1_000_000,
        sequence_ns: 0,
        kv_token_ns: 0,
    };
    let config = EngineConfig { cost, ..EngineConfig::from_profile(Profile::L4) };
    let driver = Arc::new(Driver::new(config, time_scale, vec!["tiny".to_owned()]));
    let stop = CancellationToken::new();
    let task = Arc::clone(&driver).run(stop.clone());
    tokio_util::task::TaskTracker::new().spawn(task);
    (driver, stop.drop_guard())
}

fn submit(driver: &Arc<Driver>, prompt: usize, output: usize) -> Generation {
    let job = DriverJob {
        prompt: &vec![1; prompt],
        output: &vec![2; output],
        finish: Finish::Stop,
        salt: 0,
        session: None,
    };
    driver.submit(job).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_parts_of_a_request_share_their_prompt_and_all_begin_at_once() {
    let (driver, _guard) = driver(1.0);
    let prompt = vec![1; 33];
    let job = DriverJob {
        prompt: &prompt,
        output: &[2, 3],
        finish: Finish::Stop,
        salt: 0,
        session: None,
    };
    let all = driver.submit_together(&[job; 3]).unwrap();
    let ids: Vec<RequestId> = all.iter().map(Generation::id).collect();
    assert_eq!(ids, [RequestId(1), RequestId(2), RequestId(3)]);
    // A step of 10 ms, the whole prompt once, and for each other part the token that fills no
    // block.
    let mut times = Vec::new();
    for generation in all {
        times.push(millis_until_end(generation).await);
    }
    assert_eq!(times[0], [10 + 33 + 2, 20 + 33 + 2]);
    assert_eq!(driver.stats().generation_tokens, 6);
}

async fn next(generation: &mut Generation) -> Result<DriverProgress, Lost> {
    std::future::poll_fn(|cx| generation.poll_progress(cx)).await
}

async fn millis_until_end(mut generation: Generation) -> Vec<u128> {
    let start = Instant::now();
    let mut times = Vec::new();
    while let Ok(DriverProgress::Token) = next(&mut generation).await {
        times.push(start.elapsed().as_millis());
    }
    times
}

#[tokio::test(start_paused = true)]
async fn tokens_come_when_the_engine_makes_them() {
    let (driver, _guard) = driver(1.0);
    assert_eq!(millis_until_end(submit(&driver, 20, 3)).await, [30, 40, 50]);
}

#[tokio::test(start_paused = true)]
async fn the_time_scale_stretches_real_time() {
    let (driver, _guard) = driver(10.0);
    assert_eq!(millis_until_end(submit(&driver, 20, 3)).await, [300, 400, 500]);
}

#[tokio::test(start_paused = true)]
async fn slowing_down_takes_effect_within_a_step() {
    let (driver, _guard) = driver(1.0);
    let mut generation = submit(&driver, 20, 2);
    next(&mut generation).await.unwrap();
    driver.slow_down(5.0);
    assert_eq!(millis_until_end(generation).await, [50]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_healed_does_not_sleep_out_the_slow_step() {
    let (driver, _guard) = driver(1.0);
    let generation = submit(&driver, 20, 1);
    driver.slow_down(1000.0);
    // wait: a second of paused time, which passes at once.
    tokio::time::sleep(Duration::from_secs(1)).await;
    driver.slow_down(1.0);
    assert_eq!(millis_until_end(generation).await, [29]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_driver_sleeps_until_a_request_wakes_it() {
    let (driver, _guard) = driver(1.0);
    // wait: an hour of paused time, which passes at once.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(driver.stats().steps, 0);
    assert_eq!(millis_until_end(submit(&driver, 5, 1)).await, [15]);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_generation_aborts_it_at_once() {
    let (driver, _guard) = driver(1.0);
    let mut generation = submit(&driver, 20, 100);
    next(&mut generation).await.unwrap();
    assert_eq!(driver.stats().running, 1);
    drop(generation);
    assert_eq!((driver.stats().running, driver.stats().kv_blocks_used), (0, 0));
    assert!(driver.core().live.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_read_holds_nobody_up_and_misses_nothing() {
    let (driver, _guard) = driver(1.0);
    let lazy = submit(&driver, 1, 500);
    let busy = submit(&driver, 1, 500);
    busy.finished().await.unwrap();
    assert_eq!(driver.stats().running, 0);
    assert_eq!(millis_until_end(lazy).await.len(), 500);
}

#[tokio::test(start_paused = true)]
async fn a_restart_tells_those_who_wait() {
    let (driver, _guard) = driver(1.0);
    let mut generation = submit(&driver, 20, 100);
    next(&mut generation).await.unwrap();
    driver.restart();
    assert_eq!(next(&mut generation).await, Err(Lost));
    assert_eq!(driver.stats().generation_tokens, 0);
}

#[tokio::test(start_paused = true)]
async fn the_abort_of_a_lost_request_does_not_hit_one_of_the_next_life() {
    let (driver, _guard) = driver(1.0);
    let lost = submit(&driver, 20, 100);
    driver.restart();
    let survivor = submit(&driver, 20, 3);
    drop(lost);
    assert!(survivor.finished().await.is_ok());
}
