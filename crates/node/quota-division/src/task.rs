//! The task that divides limits among regions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use spillway_cluster_state::{Actor, Command, LEASE_MS, Outcome, PLACE_MS, State};
use spillway_control_plane::{ControlPlane, ProposeError, Proposed};
use spillway_files::{load, save};
use spillway_rate_limit::{
    AgreedLimits, Before, Fate, Holder, LimitKind, LimitTerms, Quotas, Scope, Statement, Units,
};
use spillway_request::gateway::ClientState;
use spillway_types::{NodeName, RegionName, unix_ms};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::debts::Debts;
use super::saved::{self, SavedQuota, Stopped};
use super::spent::Journal;
use super::uptime::Uptime;

/// Period of looking at requests' demand and at the agreed state.
const LOOK: Duration = Duration::from_millis(250);
/// Period of noticing that a request was refused, after which a look comes at once. The next such
/// look comes after [`LOOK`] at the soonest: a flood of refusals must not make looks more frequent.
const NOTICE: Duration = Duration::from_millis(50);
/// Time limit of a statement. Units that it gave up stay given up until its fate is known.
const SAY_LIMIT: Duration = Duration::from_secs(5);
/// Time that a node waits for its shares before it reports ready. A node that is cut off has its
/// floors then.
const READY_LIMIT: Duration = Duration::from_secs(5);
/// Time for which the start waits until the files of the process before are read.
const FILES_LIMIT: Duration = Duration::from_secs(5);
/// Time after which a node that was away knows what was agreed on during its absence.
const CAUGHT_UP: Duration = Duration::from_secs(10);
/// Time limit of the last statement of a process.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// Serial of a statement, and its fate.
type Answer = (u64, Fate);

/// Parts of the node that the task works with.
#[derive(Debug)]
pub struct DivisionParts {
    /// Name of this node.
    pub node: NodeName,
    /// Region of this node.
    pub region: RegionName,
    /// Data folder.
    pub folder: PathBuf,
    /// State of clients, whose requests the limits meet.
    pub clients: Arc<ClientState>,
    /// Seed of random numbers.
    pub seed: u64,
    /// Control plane that statements are proposed to.
    pub control_plane: Arc<ControlPlane>,
    /// Tracker of the tasks that propose statements.
    pub tasks: TaskTracker,
    /// Ends the task with the node.
    pub stop: CancellationToken,
}

/// Handle of the task that divides limits.
#[derive(Debug)]
pub struct Division {
    leaving: mpsc::Sender<oneshot::Sender<()>>,
}

/// Follows the agreed state, and states in the log which shares this node has and needs.
struct Divider {
    parts: DivisionParts,
    holder: Holder,
    /// State that the agreed limits were taken from.
    seen: Arc<State>,
    /// Time of the last look, and of the last one for a refused request.
    looked: Instant,
    hurried: Instant,
    agreed_limits: Arc<AgreedLimits>,
    path: PathBuf,
    saved: SavedQuota,
    /// Charges of the process before, until they are counted.
    stopped: Option<Stopped>,
    debts: Debts,
    journal: Journal,
    /// Terms of the agreed limits.
    terms: Vec<LimitTerms>,
    born: Instant,
    /// Last time at which this node had no log that ran.
    apart: Instant,
    /// True if this node has had no process before.
    is_first: bool,
    answers: (mpsc::Sender<Answer>, mpsc::Receiver<Answer>),
}

impl Division {
    /// Applies the present agreed state before the first request comes, and follows it in the
    /// returned future. Works on a thread of its own, as it waits for the disk now and then. While
    /// the disk hangs, requests that a limit applies to are refused, and the node is not ready.
    pub async fn start(
        parts: DivisionParts,
        state: Arc<State>,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (leaving, orders) = mpsc::channel(1);
        let (clients, region) = (Arc::clone(&parts.clients), parts.region.clone());
        // No limit is known without a log, and its disk may be the reason.
        let limit = if parts.control_plane.is_stopped() { Duration::ZERO } else { FILES_LIMIT };
        let (begun, has_begun) = oneshot::channel();
        let runtime = Handle::current();
        let known = Arc::clone(&state);
        let dividing = spawn_blocking(move || {
            let mut divider = Divider::new(parts);
            divider.take_agreed_limits(&known);
            divider.await_shares(&known);
            // An error means that the start waits no more.
            let _: Result<(), ()> = begun.send(());
            runtime.block_on(divider.run(orders));
        });
        let is_late = tokio::time::timeout(limit, has_begun).await.is_err();
        if is_late && state.cluster().is_some() {
            clients.quotas.set_limits(&terms(&state.agreed_limits(&region)));
            clients.quotas.set_ready(false);
        }
        // An error is a panic, which was reported.
        (Self { leaving }, async move { drop(dividing.await) })
    }

    /// Gives back the leases and writes down the charges. To be called when no request is let in
    /// any more and the cluster can still be reached.
    pub async fn leave(&self) {
        let (done, is_done) = oneshot::channel();
        if self.leaving.send(done).await.is_ok() {
            // An error means that the task has ended: there is nothing to wait for.
            drop(tokio::time::timeout(2 * LEAVE_LIMIT, is_done).await);
        }
    }
}

impl Divider {
    fn new(parts: DivisionParts) -> Self {
        let path = saved::path(&parts.folder);
        let before = load(&path).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "saved charges of limits can't be read");
            Some(SavedQuota::default())
        });
        let kept = before.as_ref().map(|before| before.lowered.clone()).unwrap_or_default();
        let stopped = before.as_ref().and_then(|before| before.stopped.clone());
        let journal = Journal::load(&parts.folder);
        let is_counted = stopped.is_some() || journal.is_known();
        let known = match &before {
            None => Before::Nothing,
            Some(_) if is_counted => Before::Counted(kept.clone()),
            Some(_) => Before::Unknown(kept.clone()),
        };
        // A node that starts for the first time holds nothing that it would have to wait for, and
        // one whose log has stopped gets no shares.
        parts.clients.quotas.set_ready(before.is_none() || parts.control_plane.is_stopped());
        let incarnation = unix_ms(SystemTime::now()).max(1);
        let dice = fastrand::Rng::with_seed(incarnation ^ parts.seed);
        let holder = Holder::new(parts.node.clone(), incarnation, known, dice);
        let divider = Self {
            holder,
            seen: Arc::new(State::new()),
            looked: Instant::now(),
            hurried: Instant::now(),
            agreed_limits: Arc::default(),
            path,
            saved: SavedQuota { lowered: kept, stopped: None },
            // The journal has these charges as well, and none must count twice.
            stopped: stopped.filter(|_| !journal.is_known()),
            debts: Debts::load(&parts.folder),
            journal,
            terms: Vec::new(),
            born: Instant::now(),
            apart: Instant::now(),
            is_first: before.is_none(),
            answers: mpsc::channel(4),
            parts,
        };
        // Whatever happens to this process, the next one must not read that it ended in order.
        divider.save();
        divider
    }

    async fn run(mut self, mut orders: mpsc::Receiver<oneshot::Sender<()>>) {
        let mut removal = self.parts.control_plane.removal();
        let mut publications = self.parts.control_plane.publications();
        let mut notices = interval(NOTICE);
        notices.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = notices.tick() => self.notice(),
                Ok(()) = publications.changed() => {
                    let published = self.parts.control_plane.published();
                    // Another node may wait for what this one can give.
                    if published.shares().runs() != self.seen.shares().runs() {
                        self.look();
                    }
                }
                Some((serial, fate)) = self.answers.1.recv() => {
                    let now_ns = self.quotas().clock_ns(Instant::now());
                    self.holder.answered(serial, fate, now_ns);
                    // The result counts at once.
                    self.look();
                }
                Some(done) = orders.recv() => {
                    self.leave().await;
                    let _: Result<(), ()> = done.send(());
                    break;
                }
                true = is_removed(&mut removal) => {
                    // Other nodes have this node's shares now.
                    self.drop_all();
                    break;
                }
                () = self.parts.stop.cancelled() => return,
            }
        }
        // To end before the node does would be a fault of this task.
        self.parts.stop.cancelled().await;
    }

    /// Looks if it is time for it, or if a request was refused.
    fn notice(&mut self) {
        let now = Instant::now();
        let is_regular = now.duration_since(self.looked) >= LOOK;
        let may_hurry = now.duration_since(self.hurried) >= LOOK;
        if may_hurry && self.quotas().take_refused() {
            self.hurried = now;
            self.look();
        } else if is_regular {
            self.look();
        }
    }

    fn look(&mut self) {
        self.looked = Instant::now();
        if self.parts.control_plane.is_stopped() {
            self.apart = self.looked;
        }
        let state = self.parts.control_plane.published();
        self.await_shares(&state);
        if state.cluster().is_none() {
            return;
        }
        self.take_agreed_limits(&state);
        let clients = Arc::clone(&self.parts.clients);
        let (shares, quotas) = (state.shares(), &clients.quotas);
        let said = self.holder.look(Instant::now(), shares, &self.agreed_limits, quotas);
        self.debts.note(quotas, || self.holder.used(), Instant::now());
        self.journal.note(quotas, || self.holder.used(), Instant::now());
        let Some(said) = said else { return };
        if !self.note_lowered() {
            // Floors that are not written down are not given up.
            self.holder.answered(said.serial, Fate::Never, clients.quotas.clock_ns(Instant::now()));
            return;
        }
        let (serial, answers) = (said.serial, self.answers.0.clone());
        let saying = say(Arc::clone(&self.parts.control_plane), self.command(said), SAY_LIMIT);
        let stop = self.parts.stop.clone();
        self.parts.tasks.spawn(async move {
            let fate = stop.run_until_cancelled(saying).await.unwrap_or(Fate::Unknown);
            // The receiver is gone only when the node ends.
            let _: Result<(), _> = answers.send((serial, fate)).await;
        });
    }

    /// Sets the node ready when it knows what the cluster agrees on now and holds its shares, or has
    /// waited long enough.
    fn await_shares(&self, state: &State) {
        let quotas = self.quotas();
        if quotas.is_ready() {
            return;
        }
        let now_ns = quotas.clock_ns(Instant::now());
        let holds = || self.holder.holds_shares(now_ns, state.shares(), &self.agreed_limits);
        // Before that, keys may be good here that were revoked while this node was down.
        let is_up_to_date = || self.parts.control_plane.status().age.is_some();
        let is_sure = || state.cluster().is_some() && is_up_to_date() && holds();
        let is_stopped = self.parts.control_plane.is_stopped();
        if is_stopped || self.born.elapsed() >= READY_LIMIT || is_sure() {
            quotas.set_ready(true);
        }
    }

    /// Applies the agreed limits, once every node can.
    fn take_agreed_limits(&mut self, state: &Arc<State>) {
        if Arc::ptr_eq(state, &self.seen) {
            return;
        }
        let before = std::mem::replace(&mut self.seen, Arc::clone(state));
        let (now, before) = (state.records(), before.as_ref());
        let is_same = now.limits == before.records().limits
            && now.nodes == before.records().nodes
            && [PLACE_MS, LEASE_MS].iter().all(|name| state.setting(name) == before.setting(name));
        if is_same && before.cluster() == state.cluster() {
            return;
        }
        let mut agreed_limits = state.agreed_limits(&self.parts.region);
        if state.cluster().is_none() {
            agreed_limits.terms.clear();
        }
        // Nodes that joined earlier may use all of a limit that has a pool.
        let is_new = |scope: &&Scope| !self.agreed_limits.terms.contains_key(*scope);
        let is_divided = |scope: &Scope| state.shares().pool(scope).is_some();
        let is_undivided = !agreed_limits.terms.keys().filter(is_new).any(is_divided);
        self.agreed_limits = Arc::new(agreed_limits);
        self.terms = terms(&self.agreed_limits);
        let quotas = &self.parts.clients.quotas;
        // A limit that is new while this process serves is not divided by any node yet. A limit
        // that is new to a starting process may be in use by others already, and so may one that
        // a log has which this node follows from its beginning.
        let is_member = || now.nodes.iter().any(|(_, node)| node.spec.name == self.parts.node);
        let has_seen_all = self.is_first && is_member() || self.apart.elapsed() >= CAUGHT_UP;
        match quotas.is_ready() && is_undivided && has_seen_all {
            true => quotas.open_limits(&self.terms, Instant::now()),
            false => quotas.set_limits(&self.terms),
        }
        self.debts.charge(quotas, &self.terms);
        if state.cluster().is_some() {
            self.journal.count(quotas, &self.terms);
        }
        if state.cluster().is_some()
            && let Some(stopped) = self.stopped.take()
        {
            self.assume(&stopped);
        }
    }

    /// Counts the charges of the process before.
    fn assume(&self, stopped: &Stopped) {
        let (now, up) = (Instant::now(), Uptime::now());
        for scope in self.agreed_limits.terms.keys() {
            for (age, tokens) in stopped.charged(scope, &up) {
                self.quotas().assume(scope, Units([0, tokens, 0]), age, now);
            }
        }
    }

    /// Writes lowered floors to disk, before any other node learns of them. Returns true if they
    /// are written.
    fn note_lowered(&mut self) -> bool {
        if *self.holder.lowered_floors() == self.saved.lowered {
            return true;
        }
        self.saved.lowered.clone_from(self.holder.lowered_floors());
        self.save()
    }

    fn save(&self) -> bool {
        let saved = save(&self.path, &self.saved);
        if let Err(error) = &saved {
            tracing::warn!(%error, path = %self.path.display(), "charges of limits can't be saved");
        }
        saved.is_ok()
    }

    async fn leave(&mut self) {
        let state = self.parts.control_plane.published();
        if state.cluster().is_some() {
            let giving_back = self.give_back(&state);
            drop(tokio::time::timeout(LEAVE_LIMIT, giving_back).await);
        }
        let now = Instant::now();
        self.debts.write(&self.parts.clients.quotas, self.terms.iter().cloned(), now);
        self.journal.close(&self.parts.clients.quotas, self.terms.iter().cloned(), now);
        let tokens = self.agreed_limits.terms.keys().map(|scope| {
            let spent = self.quotas().spent(scope, LimitKind::TokenRate, now);
            let spent = spent.into_iter().map(|(age, units)| (age.as_millis() as u64, units));
            (scope.clone(), spent.collect())
        });
        self.saved.stopped = Some(Stopped { at: Uptime::now(), tokens: tokens.collect() });
        self.drop_all();
        self.save();
    }

    /// Gives back all leases that are not in use, as many at a time as a statement has room for.
    async fn give_back(&mut self, state: &State) {
        let clients = Arc::clone(&self.parts.clients);
        loop {
            self.holder.leave();
            let (shares, quotas) = (state.shares(), &clients.quotas);
            let said = self.holder.look(Instant::now(), shares, &self.agreed_limits, quotas);
            let is_noted = self.note_lowered();
            let Some(said) = said.filter(|_| is_noted) else { return };
            let command = self.command(said);
            say(Arc::clone(&self.parts.control_plane), command, LEAVE_LIMIT).await;
        }
    }

    /// Lets in nothing that a limit applies to from now on.
    fn drop_all(&self) {
        for scope in self.agreed_limits.terms.keys() {
            self.quotas().hold(scope, &spillway_rate_limit::Holding::default());
        }
    }

    fn command(&self, said: Statement) -> Command {
        Command::LeaseShares { region: self.parts.region.clone(), said }
    }

    fn quotas(&self) -> &Quotas {
        &self.parts.clients.quotas
    }
}

fn terms(limits: &AgreedLimits) -> Vec<LimitTerms> {
    let terms = limits.terms.iter().map(|(scope, terms)| LimitTerms {
        scope: scope.clone(),
        whole: terms.whole,
        requests: terms.requests,
    });
    terms.collect()
}

/// Waits until the cluster has removed this node; false if the control plane ends before.
async fn is_removed(removal: &mut watch::Receiver<bool>) -> bool {
    removal.wait_for(|removed| *removed).await.is_ok()
}

/// Proposes a statement, and returns its fate.
async fn say(control_plane: Arc<ControlPlane>, command: Command, limit: Duration) -> Fate {
    fate(control_plane.propose(command, Actor::Node, None, limit).await)
}

/// Returns the fate of a statement by the result of its proposal.
fn fate(proposed: Result<Proposed<Outcome>, ProposeError>) -> Fate {
    match proposed.map(|done| done.outcome) {
        Ok(Outcome::Refused(refusal)) => {
            tracing::debug!(%refusal, "shares of limits were not leased");
            Fate::Never
        }
        Ok(_) => Fate::TakenIn,
        Err(error) if error.may_be_written() => {
            tracing::debug!(%error, "it is not known whether shares of limits were leased");
            Fate::Unknown
        }
        Err(error) => {
            tracing::debug!(%error, "shares of limits were not leased");
            Fate::Never
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_no_log_has_binds_nobody() {
        let refused = [
            ProposeError::NoQuorum { leader: None },
            ProposeError::Budget { retry_after: LOOK },
            ProposeError::Stopped(String::new()),
        ];
        for error in refused {
            assert_eq!(fate(Err(error.clone())), Fate::Never, "{error}");
        }
        assert_eq!(fate(Err(ProposeError::Unknown)), Fate::Unknown);
        let done = Proposed { index: 7, outcome: Outcome::Unchanged };
        assert_eq!(fate(Ok(done)), Fate::TakenIn);
    }
}
