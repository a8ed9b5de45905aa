//! State machine of a reply, from its head to its end.

mod action;
mod event;
mod fault;
mod rules;

use std::time::{Duration, Instant};

use spillway_types::End;

use crate::continuation::StreamEnd;

pub use action::ReplyAction;
pub use event::{PartEnd, PieceKind, ReplyEvent, SourceSight, SourceState};
pub use fault::{EngineState, ReplyFault, ReplySource};
pub use rules::{FailureForm, ReplyRules};

/// Interval at which the driver looks at the state of a reply's source while no piece comes. It also
/// bounds how late a replica that went down is noticed before its reply begins.
pub const SOURCE_LOOK: Duration = Duration::from_millis(250);

/// Silence after which a region that is out of reach has lost its replies. Shorter cuts of the
/// network are survived: the bytes come late, but they come.
const REGION_SILENCE: Duration = Duration::from_secs(1);

/// Pause between two tries to move a stream away from a source that is being drained.
const MOVE_PAUSE: Duration = Duration::from_secs(1);

/// Reply of one request while it is relayed to the client.
///
/// The driver reads the source, reports what comes by [`Reply::on`], and carries out the one action
/// that is returned. While no piece comes, it calls [`Reply::on_time`] at [`Reply::wake_at`]. A
/// target that fails is replaced where the stream can be continued. Otherwise the reply ends with an
/// error that the client can distinguish from a whole answer. After the end every input is ignored,
/// so that a reply ends once.
#[derive(Clone, Debug)]
pub struct Reply {
    rules: ReplyRules,
    source: ReplySource,
    state: ReplyState,
    /// True if another target may continue the stream.
    is_continuable: bool,
    /// Moment at which the source was asked.
    asked_at: Instant,
    /// Moment of the last piece, or from which on the silence counts.
    heard_at: Instant,
    /// Moment at which the client last got a piece or a keep-alive.
    passed_at: Instant,
    /// Moment of the next look at the state of the source.
    look_at: Instant,
    /// Moment before which the stream is not moved.
    move_at: Instant,
    /// Time since which there has been no connection to the node that serves the reply.
    disconnected_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyState {
    /// The source serves the reply.
    // Serving => (Ending, by the last event | Behind, by a full buffer | Moving, by a drain
    //   | Continuing, by a fault | Over)
    Serving(Progress, Waiting),
    /// The client has the last event: whatever happens to the source, the answer is whole.
    // Ending => Over
    Ending,
    /// The client is behind and its buffer is full: the source waits, so its silence means nothing.
    // Behind => (Serving | Ending | Over)
    Behind(Progress),
    /// The source is being drained, and another target is sought. It still holds its reply.
    // Moving => (Serving, by either target | Over)
    Moving { progress: Progress, since: Instant },
    /// The source has failed, and another target is sought.
    // Continuing => (Serving, by another target | Over)
    Continuing(Progress, ReplyFault),
    /// The reply has ended, for the client and the source.
    Over(ReplyEnd),
}

/// Progress of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// No content has come.
    Head,
    /// A part of the answer has come.
    Streaming,
}

/// Side that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// The client has all pieces, and the source was asked for more.
    ForSource,
    /// A piece is with the client. The source may be silent because it was not asked.
    ForClient,
}

/// End of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEnd {
    /// The client has the whole answer.
    Whole,
    /// The reply failed, and the client was sent an error or a break.
    Failed(ReplyFault),
    /// The client left.
    ClientGone,
}

impl Reply {
    /// Creates the state of a reply whose head is passed on at `now`. `asked_at` is the moment at
    /// which the source was asked; another region watches its replica itself, so that only the time
    /// since the head counts there. `is_continuable`: another target may continue the stream.
    #[must_use]
    pub fn new(
        rules: ReplyRules,
        source: ReplySource,
        is_continuable: bool,
        asked_at: Instant,
        now: Instant,
    ) -> Self {
        Self {
            rules,
            source,
            state: ReplyState::Serving(Progress::Head, Waiting::ForSource),
            is_continuable: is_continuable && rules.form == FailureForm::Events,
            asked_at,
            heard_at: now,
            passed_at: now,
            look_at: now + SOURCE_LOOK,
            move_at: now,
            disconnected_at: None,
        }
    }

    /// Returns the end of the reply; `None` while it goes on.
    #[must_use]
    pub fn ended(&self) -> Option<ReplyEnd> {
        match self.state {
            ReplyState::Over(end) => Some(end),
            _ => None,
        }
    }

    /// Returns the moment at which the source that serves now was asked.
    #[must_use]
    pub fn asked_at(&self) -> Instant {
        self.asked_at
    }

    /// Returns the target that serves the reply, or that served it last.
    #[must_use]
    pub fn source(&self) -> ReplySource {
        self.source
    }

    /// Returns true if the source is read from.
    #[must_use]
    pub fn reads(&self) -> bool {
        matches!(self.state, ReplyState::Serving(..) | ReplyState::Ending | ReplyState::Behind(_))
    }

    /// Returns true if another target is being sought.
    #[must_use]
    pub fn seeks(&self) -> bool {
        matches!(self.state, ReplyState::Moving { .. } | ReplyState::Continuing(..))
    }

    /// Returns true if another target may continue the stream.
    #[must_use]
    pub fn is_continuable(&self) -> bool {
        self.is_continuable
    }

    /// Notes that no target can continue the stream any more, e.g. since its text became too long.
    pub fn rule_out_continuation(&mut self) {
        self.is_continuable = false;
    }

    /// Returns true if the client's buffer is full, so that the source waits.
    #[must_use]
    pub fn is_client_behind(&self) -> bool {
        matches!(self.state, ReplyState::Behind(_))
    }

    /// Takes an input and returns the action that follows. The driver carries it out before the next
    /// input.
    ///
    /// An input that does not fit the state changes nothing: a piece that was under way may arrive
    /// after the end.
    #[inline]
    #[must_use]
    pub fn on(&mut self, event: ReplyEvent, now: Instant) -> ReplyAction {
        match event {
            // These come with each token.
            ReplyEvent::Piece(kind) => self.piece(kind, now),
            ReplyEvent::Passed => self.passed(now),
            ReplyEvent::Asked => self.asked(),
            event => return self.turn(event, now),
        }
        ReplyAction::Proceed
    }

    /// Takes an input that may change the target that serves the reply, or end it.
    fn turn(&mut self, event: ReplyEvent, now: Instant) -> ReplyAction {
        match (self.state, event) {
            (ReplyState::Over(_), _) => ReplyAction::Proceed,
            (_, ReplyEvent::ClientGone) => self.over(ReplyEnd::ClientGone, ReplyAction::Proceed),
            (ReplyState::Moving { progress, since }, event) => {
                self.moving(progress, since, event, now)
            }
            (ReplyState::Continuing(progress, fault), event) => {
                self.continuing(progress, fault, event, now)
            }
            (ReplyState::Ending, event) => self.ending(event),
            (ReplyState::Behind(progress), ReplyEvent::ClientCaughtUp) => {
                self.state = ReplyState::Serving(progress, Waiting::ForClient);
                ReplyAction::Proceed
            }
            (ReplyState::Serving(progress, _) | ReplyState::Behind(progress), event) => {
                self.serving(progress, event)
            }
        }
    }

    /// Takes an input while the source serves.
    fn serving(&mut self, progress: Progress, event: ReplyEvent) -> ReplyAction {
        match event {
            ReplyEvent::ClientBehind => {
                self.state = ReplyState::Behind(progress);
                ReplyAction::Proceed
            }
            ReplyEvent::Ended(end) => self.part_ended(end, progress),
            ReplyEvent::Broke => self.fail(progress, ReplyFault::Cut),
            ReplyEvent::Reported(engine) => self.fail(progress, ReplyFault::Reported(engine)),
            ReplyEvent::Aborted => self.fail(progress, ReplyFault::Aborted),
            ReplyEvent::GivenUp => self.fail(progress, ReplyFault::GivenUp),
            _ => ReplyAction::Proceed,
        }
    }

    #[inline]
    fn piece(&mut self, kind: PieceKind, now: Instant) {
        let (ReplyState::Serving(progress, _) | ReplyState::Behind(progress)) = &mut self.state
        else {
            return;
        };
        self.heard_at = now;
        match kind {
            PieceKind::NoContent => {}
            PieceKind::Content => *progress = Progress::Streaming,
            PieceKind::Last => self.state = ReplyState::Ending,
        }
    }

    #[inline]
    fn passed(&mut self, now: Instant) {
        match &mut self.state {
            ReplyState::Serving(_, waiting) => *waiting = Waiting::ForClient,
            // The source waits in any case.
            ReplyState::Behind(_) => {}
            _ => return,
        }
        self.passed_at = now;
    }

    #[inline]
    fn asked(&mut self) {
        if let ReplyState::Serving(_, waiting) = &mut self.state {
            *waiting = Waiting::ForSource;
        }
    }

    fn part_ended(&mut self, end: PartEnd, progress: Progress) -> ReplyAction {
        match end {
            PartEnd::Whole => self.over(ReplyEnd::Whole, ReplyAction::Finish),
            PartEnd::Unfinished => self.fail(progress, ReplyFault::Unfinished),
            PartEnd::Aborted => self.fail(progress, ReplyFault::Aborted),
            // The client has the error already.
            PartEnd::Failed(engine) => {
                let fault = ReplyFault::Reported(engine);
                self.over(ReplyEnd::Failed(fault), ReplyAction::Finish)
            }
        }
    }

    /// Takes an input after the last event was passed on.
    fn ending(&mut self, event: ReplyEvent) -> ReplyAction {
        match event {
            ReplyEvent::Ended(_) => self.over(ReplyEnd::Whole, ReplyAction::Finish),
            // Some servers close their connection before the end of the body.
            ReplyEvent::Broke
            | ReplyEvent::Reported(_)
            | ReplyEvent::Aborted
            | ReplyEvent::GivenUp => self.over(ReplyEnd::Whole, ReplyAction::Close),
            _ => ReplyAction::Proceed,
        }
    }

    /// Takes an input while another target is sought for a stream whose source drains.
    fn moving(
        &mut self,
        progress: Progress,
        since: Instant,
        event: ReplyEvent,
        now: Instant,
    ) -> ReplyAction {
        match event {
            ReplyEvent::Continued(source) => self.served_by(source, progress, now),
            ReplyEvent::NotContinued(_) => {
                // The source was not read during that time, so the time is no silence.
                let unread = now.saturating_duration_since(since);
                self.heard_at += unread;
                self.asked_at += unread;
                self.move_at = now + MOVE_PAUSE;
                self.state = ReplyState::Serving(progress, Waiting::ForSource);
            }
            _ => {}
        }
        ReplyAction::Proceed
    }

    /// Takes an input while another target is sought for a stream whose source failed.
    fn continuing(
        &mut self,
        progress: Progress,
        fault: ReplyFault,
        event: ReplyEvent,
        now: Instant,
    ) -> ReplyAction {
        match event {
            ReplyEvent::Continued(source) => {
                self.served_by(source, progress, now);
                ReplyAction::Proceed
            }
            ReplyEvent::NotContinued(StreamEnd::Complete) => {
                self.over(ReplyEnd::Whole, ReplyAction::Complete)
            }
            // The last engine's error would hide that the request may be the cause.
            ReplyEvent::NotContinued(StreamEnd::Deaths) => {
                let fault = ReplyFault::GivenUp;
                self.over(ReplyEnd::Failed(fault), ReplyAction::Break(fault))
            }
            ReplyEvent::NotContinued(end) => self.broken(fault, Some(end)),
            _ => ReplyAction::Proceed,
        }
    }

    /// Goes on with a source whose time limits begin now.
    fn served_by(&mut self, source: ReplySource, progress: Progress, now: Instant) {
        self.source = source;
        (self.asked_at, self.heard_at, self.look_at) = (now, now, now + SOURCE_LOOK);
        self.disconnected_at = None;
        self.state = ReplyState::Serving(progress, Waiting::ForClient);
    }

    /// Takes a failure of the source.
    fn fail(&mut self, progress: Progress, fault: ReplyFault) -> ReplyAction {
        if self.is_continuable && fault.is_repairable() {
            self.state = ReplyState::Continuing(progress, fault);
            return ReplyAction::Continue(fault);
        }
        self.broken(fault, None)
    }

    /// Ends the reply with an error. `end` is the end of the continuations, if there were any.
    fn broken(&mut self, fault: ReplyFault, end: Option<StreamEnd>) -> ReplyAction {
        // After a search the source's own error would be about a target that is long gone.
        let is_fresh = end.is_none_or(|end| !end.is_after_search());
        let action = match fault.has_own_event() && is_fresh {
            true => ReplyAction::Release(fault),
            false => ReplyAction::Break(fault),
        };
        self.over(ReplyEnd::Failed(fault), action)
    }

    fn over(&mut self, end: ReplyEnd, action: ReplyAction) -> ReplyAction {
        self.state = ReplyState::Over(end);
        action
    }

    /// Judges the source by time. Call it at [`Reply::wake_at`] while the source has no piece and
    /// the client has all that came; an early call is harmless.
    #[must_use]
    pub fn on_time(&mut self, sight: SourceSight, now: Instant) -> ReplyAction {
        self.look_at = now + SOURCE_LOOK;
        let is_late = now >= self.rules.deadline;
        match self.state {
            ReplyState::Serving(progress, _) | ReplyState::Behind(progress) if is_late => {
                self.fail(progress, ReplyFault::DeadlinePassed)
            }
            ReplyState::Serving(progress, waiting) => {
                self.judge_silence(progress, waiting, sight, now)
            }
            ReplyState::Ending if is_late || now >= self.heard_at + self.rules.idle => {
                self.over(ReplyEnd::Whole, ReplyAction::Close)
            }
            ReplyState::Moving { .. } | ReplyState::Continuing(..) => self.keep_alive(now),
            ReplyState::Ending | ReplyState::Behind(_) | ReplyState::Over(_) => {
                ReplyAction::Proceed
            }
        }
    }

    fn judge_silence(
        &mut self,
        progress: Progress,
        waiting: Waiting,
        sight: SourceSight,
        now: Instant,
    ) -> ReplyAction {
        // A connection that is replaced, e.g. with new certificates, is missing for a moment.
        let disconnected_at = match sight.state {
            SourceState::Disconnected => self.disconnected_at.or(Some(now)),
            _ => None,
        };
        self.disconnected_at = disconnected_at;
        let is_lost = match sight.state {
            SourceState::OutOfReach => true,
            _ => disconnected_at.is_some_and(|since| now >= since + REGION_SILENCE),
        };
        if is_lost && now >= self.silent_since() + REGION_SILENCE {
            return self.fail(progress, ReplyFault::Lost);
        }
        match sight.state {
            SourceState::Down => return self.fail(progress, ReplyFault::Down),
            SourceState::Silent if self.is_continuable => {
                return self.fail(progress, ReplyFault::Down);
            }
            SourceState::Leaving if self.is_continuable && now >= self.move_at => {
                self.state = ReplyState::Moving { progress, since: now };
                return ReplyAction::Move;
            }
            SourceState::Well
            | SourceState::Silent
            | SourceState::Leaving
            | SourceState::OutOfReach
            | SourceState::Disconnected => {}
        }
        if now < self.silence_due(progress, sight.client_sent) {
            return self.keep_alive(now);
        }
        match (waiting, progress) {
            // The source was not asked for more all the while, so its silence begins now.
            (Waiting::ForClient, _) => {
                (self.asked_at, self.heard_at) = (now, now);
                self.state = ReplyState::Serving(progress, Waiting::ForSource);
                self.keep_alive(now)
            }
            (Waiting::ForSource, Progress::Head) => self.fail(progress, ReplyFault::NotBegun),
            (Waiting::ForSource, Progress::Streaming) => self.fail(progress, ReplyFault::Stalled),
        }
    }

    fn keep_alive(&mut self, now: Instant) -> ReplyAction {
        if self.keep_alive_due().is_none_or(|due| now < due) {
            return ReplyAction::Proceed;
        }
        self.passed_at = now;
        ReplyAction::KeepAlive
    }

    fn keep_alive_due(&self) -> Option<Instant> {
        let keep_alive =
            self.rules.keep_alive.filter(|_| self.rules.form == FailureForm::Events)?;
        Some(self.passed_at + keep_alive)
    }

    /// Returns the moment at which the source has been silent for too long. Until the first
    /// content the limit is the time to first byte: engines send a stream's head and a role at once,
    /// and then read the prompt. In a call both sides may be silent in turn, so that only silence of both counts.
    fn silence_due(&self, progress: Progress, client_sent: Option<Instant>) -> Instant {
        let (since, allowed) = match progress {
            Progress::Streaming => (self.heard_at, self.rules.idle),
            Progress::Head => (self.asked_at, self.rules.first_byte),
        };
        client_sent.map_or(since, |sent| sent.max(since)) + allowed
    }

    /// Returns the moment of the next look at the source: earlier if a region may be lost by then.
    fn next_look(&self) -> Instant {
        match self.source {
            ReplySource::Replica => self.look_at,
            ReplySource::Region => {
                let lost_at = self.silent_since() + REGION_SILENCE;
                let is_ahead = lost_at + SOURCE_LOOK > self.look_at;
                if is_ahead { self.look_at.min(lost_at) } else { self.look_at }
            }
        }
    }

    fn silent_since(&self) -> Instant {
        self.heard_at.max(self.asked_at)
    }

    /// Returns the moment at which [`Reply::on_time`] is due while no piece comes; `None` after the
    /// end. It changes with each input. `client_sent` is that of [`SourceSight`].
    #[must_use]
    pub fn wake_at(&self, client_sent: Option<Instant>) -> Option<Instant> {
        let deadline = self.rules.deadline;
        match self.state {
            ReplyState::Serving(progress, _) => {
                let due = self.silence_due(progress, client_sent).min(deadline);
                let due = due.min(self.next_look());
                Some(self.keep_alive_due().map_or(due, |keep_alive| due.min(keep_alive)))
            }
            ReplyState::Ending => Some(deadline.min(self.heard_at + self.rules.idle)),
            ReplyState::Behind(_) => Some(deadline),
            // The search has time limits of its own.
            ReplyState::Moving { .. } | ReplyState::Continuing(..) => self.keep_alive_due(),
            ReplyState::Over(_) => None,
        }
    }
}

impl ReplyEnd {
    /// Returns the end for metrics and logs.
    #[must_use]
    pub fn end(self) -> End {
        match self {
            Self::Whole => End::Complete,
            Self::Failed(fault) => fault.end(),
            Self::ClientGone => End::CancelledInReply,
        }
    }
}

#[cfg(test)]
mod property_test;
#[cfg(test)]
mod stories_test;
#[cfg(test)]
mod table_test;
#[cfg(test)]
mod test_reply;
