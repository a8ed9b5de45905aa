use super::*;
use crate::profile::Profile;

/// Makes an engine with the limits of a profile.
fn engine(profile: Profile) -> Engine {
    Engine::new(EngineConfig::from_profile(profile))
}

/// Makes a request with a prompt that no other request has.
fn fresh(id: u64, prompt_tokens: u32, output_tokens: u32) -> EngineRequest {
    EngineRequest { id: RequestId(id), prompt_tokens, output_tokens, blocks: Vec::new() }
}

/// Steps until no work is left; returns the seconds at which tokens of each request came.
fn token_times(engine: &mut Engine) -> std::collections::BTreeMap<RequestId, Vec<f64>> {
    let mut times = std::collections::BTreeMap::<_, Vec<f64>>::new();
    while let Some(at) = engine.next_step_at() {
        for event in engine.step(at).events {
            if let EngineEvent::FirstToken { id, .. } | EngineEvent::Token { id } = event {
                times.entry(id).or_default().push(at.as_secs_f64());
            }
        }
    }
    times
}

/// Returns the seconds until the first token of a lone request.
fn first_token_s(profile: Profile, prompt_tokens: u32) -> f64 {
    let mut engine = engine(profile);
    engine.submit(Duration::ZERO, fresh(1, prompt_tokens, 1)).unwrap();
    token_times(&mut engine)[&RequestId(1)][0]
}

#[test]
fn a_prompt_of_512_tokens_has_its_first_token_after_300_ms_on_an_l4() {
    let seconds = first_token_s(Profile::L4, 512);
    assert!((0.295..0.305).contains(&seconds), "{seconds} s");
}

#[test]
fn faster_machines_are_faster() {
    let [l4, a100, h100] = Profile::ALL.map(|profile| first_token_s(profile, 4000));
    assert!(l4 > 4.0 * a100 && a100 > 1.3 * h100, "{l4} {a100} {h100}");
}

#[test]
fn an_l4_runs_as_many_requests_at_once_as_published() {
    // SkyWalker reports 20 to 50 outstanding requests on an L4, depending on their lengths.
    for (prompt_tokens, expected) in [(780, 44..=50), (1_900, 19..=21)] {
        let mut engine = engine(Profile::L4);
        for id in 0..60 {
            engine.submit(Duration::ZERO, fresh(id, prompt_tokens, 100)).unwrap();
        }
        let mut most = 0;
        while let Some(at) = engine.next_step_at() {
            drop(engine.step(at));
            most = most.max(engine.stats().running);
        }
        assert!(expected.contains(&most), "{most} requests of {prompt_tokens} tokens");
    }
}

#[test]
fn decoding_slows_down_with_the_size_of_the_batch_but_far_less_than_in_proportion() {
    let gap_s = |requests: u64| {
        let mut engine = engine(Profile::H100);
        for id in 0..requests {
            engine.submit(Duration::ZERO, fresh(id, 16, 10)).unwrap();
        }
        let times = token_times(&mut engine);
        let last = &times[&RequestId(requests - 1)];
        last[9] - last[8]
    };
    let (alone, many) = (gap_s(1), gap_s(64));
    assert!(many > alone * 1.2 && many < alone * 2.0, "{alone} s alone, {many} s among 64");
}

#[test]
fn a_long_context_makes_every_token_of_its_batch_slower() {
    let gap_s = |prompt_tokens: u32| {
        let mut engine = engine(Profile::L4);
        engine.submit(Duration::ZERO, fresh(1, prompt_tokens, 3)).unwrap();
        let times = token_times(&mut engine);
        times[&RequestId(1)][2] - times[&RequestId(1)][1]
    };
    let more = gap_s(30_000) - gap_s(100);
    // 29,900 tokens more of 437 ns each.
    assert!((more - 0.013_066).abs() < 1e-4, "{more} s");
}

#[test]
fn first_tokens_come_in_the_order_of_arrival() {
    let mut engine = engine(Profile::A100);
    for id in 0..300 {
        engine
            .submit(Duration::ZERO, fresh(id, 100 + 37 * (u32::try_from(id).unwrap() % 11), 5))
            .unwrap();
    }
    let times = token_times(&mut engine);
    let firsts: Vec<f64> = times.values().map(|times| times[0]).collect();
    assert_eq!(firsts.len(), 300);
    assert!(firsts.is_sorted(), "{firsts:?}");
}

#[test]
fn a_chunked_long_prompt_does_not_stop_those_who_decode() {
    let mut engine = engine(Profile::A100);
    engine.submit(Duration::ZERO, fresh(1, 16, 40)).unwrap();
    engine.submit(Duration::from_millis(50), fresh(2, 30_000, 1)).unwrap();
    let times = token_times(&mut engine);
    let gaps = times[&RequestId(1)].windows(2).map(|pair| pair[1] - pair[0]);
    let longest = gaps.fold(0.0, f64::max);
    // One chunk of 2,048 tokens takes 0.2 s, the whole prompt 2.9 s.
    assert!((0.19..0.25).contains(&longest), "{longest} s");
    assert!(times[&RequestId(2)][0] > 2.8);
}

#[test]
fn sharing_a_long_prompt_saves_most_of_its_prefill() {
    let blocks: Vec<u64> = (0..125).collect();
    let shared = |id| EngineRequest { blocks: blocks.clone(), ..fresh(id, 2_010, 1) };
    for profile in Profile::ALL {
        let mut engine = engine(profile);
        engine.submit(Duration::ZERO, shared(1)).unwrap();
        let cold = token_times(&mut engine)[&RequestId(1)][0];
        let now = Duration::from_secs(100);
        engine.submit(now, shared(2)).unwrap();
        let warm = token_times(&mut engine)[&RequestId(2)][0] - now.as_secs_f64();
        assert!(warm * 5.0 < cold, "{profile}: {cold} s cold, {warm} s warm");
    }
}
