use std::collections::BTreeMap;

use proptest::prelude::*;

use super::engine_test::{config, id_of, nonzero};
use super::*;

/// Call that a driver may make.
#[derive(Clone, Debug)]
enum Action {
    Submit {
        family: u32,
        shared: u32,
        prompt: u32,
        output: u32,
    },
    /// Several answers to one prompt.
    Together {
        family: u32,
        prompt: u32,
        output: u32,
        answers: u32,
    },
    Abort {
        nth: usize,
    },
    Steps {
        count: usize,
    },
    Wait {
        micros: u64,
    },
    Flush,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (0..3_u32, 0..30_u32, 1..60_u32, 0..30_u32).prop_map(
            |(family, shared, prompt, output)| Action::Submit { family, shared, prompt, output }
        ),
        2 => (0..3_u32, 1..60_u32, 0..20_u32, 1..6_u32).prop_map(
            |(family, prompt, output, answers)| {
                Action::Together { family, prompt, output, answers }
            }
        ),
        2 => (0..20_usize).prop_map(|nth| Action::Abort { nth }),
        6 => (1..12_usize).prop_map(|count| Action::Steps { count }),
        1 => (0..5000_u64).prop_map(|micros| Action::Wait { micros }),
        1 => Just(Action::Flush),
    ]
}

/// End of one request, and the events before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Heard {
    prompt_tokens: u32,
    output_tokens: u32,
    tokens: u32,
    ends: u32,
    aborted: bool,
}

/// Driver that makes the given calls and records the events.
struct Harness {
    engine: Engine,
    now: Duration,
    heard: BTreeMap<RequestId, Heard>,
    log: Vec<EngineEvent>,
}

impl Harness {
    fn new(config: EngineConfig) -> Self {
        let engine = Engine::new(config);
        Self { engine, now: Duration::ZERO, heard: BTreeMap::new(), log: Vec::new() }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Submit { family, shared, prompt, output } => {
                self.submit(*family, *shared, *prompt, *output);
            }
            Action::Together { family, prompt, output, answers } => {
                self.submit_together(*family, (*prompt, *output), *answers);
            }
            Action::Abort { nth } => self.abort(*nth),
            Action::Steps { count } => (0..*count).for_each(|_| self.step()),
            Action::Wait { micros } => self.now += Duration::from_micros(*micros),
            Action::Flush => {
                self.engine.flush_cache();
            }
        }
        self.engine.check();
    }

    /// Requests of one family share the beginning of their prompts.
    fn submit(&mut self, family: u32, shared: u32, prompt_tokens: u32, output_tokens: u32) {
        let id = RequestId(self.heard.len() as u64);
        let own = u32::try_from(id.0).unwrap() * 1000;
        let token = |at| if at < shared { family * 1_000_000 + at } else { own + at };
        let prompt: Vec<u32> = (0..prompt_tokens).map(token).collect();
        let output: Vec<u32> = (0..output_tokens).map(|at| own + 500 + at).collect();
        let request = EngineRequest::from_tokens(id, &prompt, &output, nonzero(4));
        if self.engine.submit(self.now, request).is_ok() {
            let heard = Heard { prompt_tokens, output_tokens, ..Heard::default() };
            self.heard.insert(id, heard);
        }
    }

    fn submit_together(&mut self, family: u32, (prompt, output): (u32, u32), answers: u32) {
        let first = self.heard.len() as u64;
        let tokens: Vec<u32> = (0..prompt).map(|at| family * 1_000_000 + at).collect();
        let answer = |id: u64| {
            let own = u32::try_from(id).unwrap() * 1000;
            let output: Vec<u32> = (0..output).map(|at| own + at).collect();
            EngineRequest::from_tokens(RequestId(id), &tokens, &output, nonzero(4))
        };
        let ids = first..first + u64::from(answers);
        if self.engine.submit_together(self.now, ids.clone().map(answer).collect()).is_ok() {
            let heard = Heard { prompt_tokens: prompt, output_tokens: output, ..Heard::default() };
            self.heard.extend(ids.map(|id| (RequestId(id), heard.clone())));
        }
    }

    fn abort(&mut self, nth: usize) {
        let Some((id, heard)) = self.heard.iter_mut().nth(nth) else { return };
        let live = heard.ends == 0 && !heard.aborted;
        assert_eq!(self.engine.abort(*id), live);
        heard.aborted |= live;
    }

    fn step(&mut self) {
        let Some(at) = self.engine.next_step_at() else { return };
        self.now = self.now.max(at);
        let pinned = self.pinned();
        for event in self.engine.step(self.now).events {
            self.hear(event);
        }
        self.assert_kept(&pinned);
        self.engine.check();
    }

    /// Returns the prefixes that running requests rely on.
    fn pinned(&self) -> Vec<(RequestId, Vec<crate::kv::BlockId>)> {
        let running = self.engine.batch.running.iter();
        running.map(|sequence| (sequence.id, sequence.blocks.clone())).collect()
    }

    /// Checks that a request that goes on has all blocks that it had. Only a block that another
    /// request has computed in between may be exchanged; none may be lost.
    fn assert_kept(&self, before: &[(RequestId, Vec<crate::kv::BlockId>)]) {
        for (id, blocks) in before {
            let now = self.engine.batch.running.iter().find(|sequence| sequence.id == *id);
            let Some(now) = now else { continue };
            assert!(now.blocks.len() >= blocks.len(), "{id} lost blocks");
            let cached = self.engine.batch.pool.longest_prefix(&now.hashes, usize::MAX);
            let full = (now.computed_tokens / 4) as usize;
            let known = full.min(now.hashes.len());
            assert_eq!(cached[..known], now.blocks[..known], "{id} had a block evicted");
        }
    }

    fn hear(&mut self, event: EngineEvent) {
        self.log.push(event);
        let heard = self.heard.get_mut(&id_of(&event)).unwrap();
        assert!(!heard.aborted && heard.ends == 0, "an event after the end: {event:?}");
        match event {
            EngineEvent::FirstToken { cached_tokens, .. } => {
                assert_eq!(heard.tokens, 0);
                assert!(cached_tokens < heard.prompt_tokens);
                heard.tokens = 1;
            }
            EngineEvent::Token { .. } => {
                assert!(heard.tokens > 0);
                heard.tokens += 1;
            }
            EngineEvent::Finished { cached_tokens, .. } => {
                assert!(cached_tokens < heard.prompt_tokens);
                assert_eq!(heard.tokens, heard.output_tokens);
                heard.ends += 1;
            }
            EngineEvent::Preempted { .. } => {}
        }
    }

    fn drain(&mut self) {
        for _ in 0..100_000 {
            if self.engine.next_step_at().is_none() {
                return;
            }
            self.step();
        }
        panic!("the engine does not come to rest");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any calls of a driver: no block leaks, is freed twice or evicted under a request; every
    /// accepted request ends exactly once; the cache never exceeds its size (see `check`).
    #[test]
    fn every_request_ends_once_and_every_block_is_accounted_for(
        actions in prop::collection::vec(action(), 1..80),
        kv_blocks in 23..60_u32,
        watermark_blocks in 0..4_u32,
        step_tokens_max in 1..100_u32,
    ) {
        let limits = EngineConfig {
            watermark_blocks,
            step_tokens_max: nonzero(step_tokens_max),
            ..config(kv_blocks)
        };
        let mut harness = Harness::new(limits);
        actions.iter().for_each(|action| harness.act(action));
        harness.drain();
        for (id, heard) in &harness.heard {
            prop_assert_eq!(heard.ends + u32::from(heard.aborted), 1, "{} {:?}", id, heard);
        }
        let stats = harness.engine.stats();
        prop_assert_eq!((stats.running, stats.waiting, stats.kv_blocks_used), (0, 0, 0));
        prop_assert!(stats.prefix_cache_hits_tokens <= stats.prefix_cache_queries_tokens);
        let generated: u32 = harness.heard.values().map(|heard| heard.tokens).sum();
        prop_assert_eq!(stats.generation_tokens, u64::from(generated));
    }

    /// Checks that equal calls give equal events and counters.
    #[test]
    fn an_engine_is_deterministic(actions in prop::collection::vec(action(), 1..60)) {
        let run = || {
            let mut harness = Harness::new(config(30));
            actions.iter().for_each(|action| harness.act(action));
            harness.drain();
            (harness.log, harness.engine.stats(), harness.now)
        };
        prop_assert_eq!(run(), run());
    }
}
