//! Driver of a reply for tests: carries out each action at once, and keeps what the client got.

use std::time::{Duration, Instant};

use super::*;

/// Milliseconds as a duration.
pub(super) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Some moment.
#[expect(clippy::disallowed_methods, reason = "a test needs some moment")]
pub(super) fn start() -> Instant {
    Instant::now()
}

/// A reply, and the world around it.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) start: Instant,
    pub(super) now: Instant,
    pub(super) reply: Reply,
    pub(super) state: SourceState,
    pub(super) client_sent: Option<Instant>,
    /// Actions other than [`ReplyAction::Proceed`].
    pub(super) actions: Vec<ReplyAction>,
}

/// Rules of a stream: 10 s to the first content, 4 s of silence, a minute in all.
pub(super) fn rules(form: FailureForm, now: Instant) -> ReplyRules {
    ReplyRules {
        form,
        first_byte: ms(10_000),
        idle: ms(4_000),
        deadline: now + ms(60_000),
        keep_alive: None,
    }
}

impl World {
    pub(super) fn new(form: FailureForm, source: ReplySource, is_continuable: bool) -> Self {
        let start = start();
        Self::with(rules(form, start), source, is_continuable, start)
    }

    pub(super) fn with(
        rules: ReplyRules,
        source: ReplySource,
        is_continuable: bool,
        start: Instant,
    ) -> Self {
        Self {
            start,
            now: start,
            reply: Reply::new(rules, source, is_continuable, start, start),
            state: SourceState::Well,
            client_sent: None,
            actions: Vec::new(),
        }
    }

    /// A stream of a replica that another target may continue.
    pub(super) fn stream() -> Self {
        Self::new(FailureForm::Events, ReplySource::Replica, true)
    }

    /// Reports an input, and returns the action.
    pub(super) fn on(&mut self, event: ReplyEvent) -> ReplyAction {
        let action = self.reply.on(event, self.now);
        self.note(action)
    }

    /// A token comes and is passed on to a client that asks for more.
    pub(super) fn token(&mut self) -> &mut Self {
        for event in [ReplyEvent::Piece(PieceKind::Content), ReplyEvent::Passed, ReplyEvent::Asked]
        {
            assert_eq!(self.on(event), ReplyAction::Proceed, "{event:?}");
        }
        self
    }

    fn note(&mut self, action: ReplyAction) -> ReplyAction {
        if action != ReplyAction::Proceed {
            self.actions.push(action);
        }
        action
    }

    /// Lets time pass in silence, as a driver does, until an action comes or the time is over.
    /// Returns the action and the milliseconds since the start.
    pub(super) fn silence(&mut self, longest: Duration) -> (ReplyAction, u64) {
        let until = self.now + longest;
        loop {
            let due = self.reply.wake_at(self.client_sent).filter(|due| *due <= until);
            let Some(due) = due else {
                self.now = until;
                return (ReplyAction::Proceed, self.passed_ms());
            };
            self.now = self.now.max(due);
            let sight = SourceSight { state: self.state, client_sent: self.client_sent };
            let action = self.reply.on_time(sight, self.now);
            if action != ReplyAction::Proceed {
                return (self.note(action), self.passed_ms());
            }
            let next = self.reply.wake_at(self.client_sent);
            assert!(
                next.is_none_or(|next| next > self.now),
                "a driver would spin: {:?}",
                self.reply
            );
        }
    }

    pub(super) fn passed_ms(&self) -> u64 {
        u64::try_from((self.now - self.start).as_millis()).expect("a short test")
    }
}
