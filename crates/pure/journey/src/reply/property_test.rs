use fastrand::Rng;

use super::test_reply::{World, ms, rules, start};
use super::*;

/// Tokens of the answer.
const ANSWER: usize = 40;

/// A source that generates the numbers from `at` on, and a client that collects them.
struct Walk {
    world: World,
    /// Token that the source generates next.
    at: usize,
    /// Tokens that the client got.
    client: Vec<usize>,
    /// Last event was passed on.
    is_done: bool,
    errors: u32,
    usage: usize,
}

impl Walk {
    fn new(dice: &mut Rng) -> Self {
        let begin = start();
        let form = [FailureForm::Events, FailureForm::Call, FailureForm::Bytes][dice.usize(0..3)];
        let keep_alive = dice.bool().then(|| ms(dice.u64(100..3_000)));
        let rules = ReplyRules { keep_alive, ..rules(form, begin) };
        let source = [ReplySource::Replica, ReplySource::Region][dice.usize(0..2)];
        let world = World::with(rules, source, dice.bool(), begin);
        Self { world, at: 0, client: Vec::new(), is_done: false, errors: 0, usage: 0 }
    }

    /// Carries out an action as a relay does.
    fn carry_out(&mut self, action: ReplyAction, dice: &mut Rng) {
        match action {
            ReplyAction::Proceed | ReplyAction::KeepAlive => {}
            ReplyAction::Continue(_) | ReplyAction::Move => {
                assert!(self.world.reply.seeks(), "{action:?}");
                // The search takes a while, and pieces that were under way may still arrive.
                self.world.now += ms(dice.u64(0..500));
                if dice.bool() {
                    let stale = self.world.on(ReplyEvent::Piece(PieceKind::Content));
                    assert_eq!(stale, ReplyAction::Proceed);
                }
                let event = self.search_result(action, dice);
                if let ReplyEvent::Continued(_) = event {
                    self.at = self.client.len();
                    self.world.state = SourceState::Well;
                }
                let next = self.world.on(event);
                self.carry_out(next, dice);
            }
            ReplyAction::Complete => self.is_done = true,
            ReplyAction::Finish | ReplyAction::Close => {}
            ReplyAction::Release(_) | ReplyAction::Break(_) => self.errors += 1,
        }
    }

    fn search_result(&self, action: ReplyAction, dice: &mut Rng) -> ReplyEvent {
        // The gateway writes last events only where the answer lacks nothing else.
        let is_whole = self.client.len() == ANSWER && action != ReplyAction::Move;
        match dice.u8(0..4) {
            0 => ReplyEvent::NotContinued(StreamEnd::Late),
            1 => ReplyEvent::NotContinued(StreamEnd::Budget),
            _ if is_whole => ReplyEvent::NotContinued(StreamEnd::Complete),
            2 => ReplyEvent::Continued(ReplySource::Region),
            _ => ReplyEvent::Continued(ReplySource::Replica),
        }
    }

    fn step(&mut self, dice: &mut Rng) {
        let action = match dice.u8(0..160) {
            0..110 => self.token(),
            110..116 => self.world.on(ReplyEvent::Piece(PieceKind::NoContent)),
            116..120 => self.world.on(ReplyEvent::ClientBehind),
            120..130 => self.world.on(ReplyEvent::ClientCaughtUp),
            130..136 => self.world.on(ReplyEvent::Asked),
            136..142 => self.world.on(ReplyEvent::Passed),
            142 => self.part_ends(),
            143 => self.world.on(ReplyEvent::Broke),
            144 if !self.is_done => self.world.on(ReplyEvent::Reported(EngineState::Dying)),
            145 if !self.is_done => self.world.on(ReplyEvent::Aborted),
            146..150 => {
                self.world.state = [
                    SourceState::Well,
                    SourceState::Leaving,
                    SourceState::Down,
                    SourceState::Silent,
                    SourceState::OutOfReach,
                    SourceState::Disconnected,
                ][dice.usize(0..6)];
                ReplyAction::Proceed
            }
            150 if dice.u8(0..8) == 0 => self.world.on(ReplyEvent::ClientGone),
            _ => self.world.silence(ms(dice.u64(0..3_000))).0,
        };
        self.carry_out(action, dice);
    }

    /// The source generates a token, and the client gets it if the source is read from.
    fn token(&mut self) -> ReplyAction {
        if !self.world.reply.reads() || self.is_done {
            return ReplyAction::Proceed;
        }
        if self.at == ANSWER {
            self.is_done = true;
            return self.world.on(ReplyEvent::Piece(PieceKind::Last));
        }
        self.client.push(self.at);
        self.at += 1;
        self.world.on(ReplyEvent::Piece(PieceKind::Content))
    }

    fn part_ends(&mut self) -> ReplyAction {
        let is_whole = self.is_done;
        let end = if is_whole { PartEnd::Whole } else { PartEnd::Unfinished };
        self.world.on(ReplyEvent::Ended(end))
    }
}

#[test]
fn whatever_happens_a_reply_ends_once_with_a_reason_and_its_client_has_a_beginning_of_the_answer() {
    let mut ends = std::collections::BTreeMap::new();
    for seed in 0..4_000 {
        let mut dice = Rng::with_seed(seed);
        let mut walk = Walk::new(&mut dice);
        for _ in 0..300 {
            walk.step(&mut dice);
            let expected: Vec<usize> = (0..walk.client.len()).collect();
            assert_eq!(walk.client, expected, "seed {seed}: no gap and no repeat");
            assert!(walk.client.len() >= walk.usage, "seed {seed}: usage decreased");
            walk.usage = walk.client.len();
            assert!(walk.errors <= 1, "seed {seed}: two ends");
            if walk.world.reply.ended().is_some() {
                break;
            }
        }
        let Some(end) = walk.world.reply.ended() else { continue };
        *ends.entry(format!("{end:?}")).or_insert(0) += 1;
        check_end(&walk, end, seed);
        let (client, errors) = (walk.client.len(), walk.errors);
        for _ in 0..50 {
            walk.step(&mut dice);
        }
        assert_eq!(
            (walk.client.len(), walk.errors),
            (client, errors),
            "seed {seed}: after the end"
        );
        assert_eq!(walk.world.reply.ended(), Some(end), "seed {seed}: another end");
    }
    // The walks reach each end but those that a single look decides rarely.
    assert!(ends.len() >= 9, "{ends:?}");
}

#[track_caller]
fn check_end(walk: &Walk, end: ReplyEnd, seed: u64) {
    match end {
        ReplyEnd::Whole => {
            assert_eq!((walk.client.len(), walk.errors), (ANSWER, 0), "seed {seed}: whole");
            assert!(walk.is_done, "seed {seed}: the client knows that it is whole");
        }
        ReplyEnd::Failed(_) => assert_eq!(walk.errors, 1, "seed {seed}: an error"),
        ReplyEnd::ClientGone => assert_eq!(walk.errors, 0, "seed {seed}"),
    }
    assert!(!walk.world.reply.reads() && !walk.world.reply.seeks(), "seed {seed}");
    assert_eq!(walk.world.reply.wake_at(None), None, "seed {seed}");
}

#[test]
fn no_reply_outlives_its_deadline_and_no_silent_source_its_limit() {
    for seed in 0..2_000 {
        let mut dice = Rng::with_seed(seed);
        let mut walk = Walk::new(&mut dice);
        for _ in 0..dice.u32(0..12) {
            walk.step(&mut dice);
        }
        // From here on nothing comes, and no search finds a target.
        walk.world.on(ReplyEvent::ClientCaughtUp);
        walk.world.on(ReplyEvent::Asked);
        let from = walk.world.now;
        while walk.world.reply.ended().is_none() {
            let (action, _) = walk.world.silence(ms(30_000));
            if walk.world.reply.seeks() {
                let end = ReplyEvent::NotContinued(StreamEnd::Late);
                walk.world.on(end);
            }
            assert!(action != ReplyAction::Proceed, "seed {seed}: {:?}", walk.world.reply);
        }
        let longest = ms(10_000).max(ms(4_000));
        assert!(walk.world.now <= from + longest + SOURCE_LOOK, "seed {seed}");
        assert!(walk.world.now <= walk.world.start + ms(60_000).max(from - walk.world.start));
    }
}
