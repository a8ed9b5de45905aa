//! Messages to a service manager: ready, stopping, a status line, and watchdog pings.
//!
//! Speaks systemd's protocol (sd_notify) if NOTIFY_SOCKET is set, and does nothing otherwise.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use spillway_node::{Gateway, Hung, Liveness};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Interval at which the node is checked. Its readiness is reported this much later at most.
const LOOK: Duration = Duration::from_millis(100);
/// Interval at which the status line is sent where no watchdog asks for a shorter one.
const TELL: Duration = Duration::from_secs(10);
/// Pings in the time that the watchdog allows, so that two of them may be late.
const PINGS: u32 = 3;

/// State of a node, as a service manager sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServicePhase {
    /// The node listens, and waits for its shares of limits.
    Starting,
    /// The node is ready for clients.
    Serving,
    /// The node was asked to stop, and lets requests finish.
    Stopping,
}

impl ServicePhase {
    // Starting => (Serving | Stopping), Serving => Stopping
    fn after(self, is_leaving: bool, has_shares: bool) -> Self {
        match self {
            _ if is_leaving => Self::Stopping,
            Self::Starting if has_shares => Self::Serving,
            phase => phase,
        }
    }

    /// Returns the message for the begin of this phase; None if there is none.
    fn notification(self) -> Option<NotifyState<'static>> {
        match self {
            Self::Starting => None,
            Self::Serving => Some(NotifyState::Ready),
            Self::Stopping => Some(NotifyState::Stopping),
        }
    }
}

/// Content of the status line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServiceState {
    phase: ServicePhase,
    /// Requests that run or wait.
    unfinished: u64,
    /// Replicas that take requests.
    replicas: usize,
    hung: Vec<Hung>,
}

impl ServiceState {
    /// Returns the line for `systemctl status`.
    fn words(&self) -> String {
        let Self { phase, unfinished, replicas, hung } = self;
        if let Some(names) = named(hung) {
            return format!("Hangs: no answer from {names}; the watchdog is not fed");
        }
        match phase {
            ServicePhase::Starting => "Listens; waits for its shares of limits".to_owned(),
            ServicePhase::Serving => {
                format!(
                    "Serves {unfinished} requests; {replicas} replicas of this region take more"
                )
            }
            ServicePhase::Stopping => format!("Drains; {unfinished} requests are to finish"),
        }
    }

    /// Returns true if the watchdog may be fed. A node that ends has threads that ended already.
    fn is_alive(&self) -> bool {
        self.hung.is_empty() || self.phase == ServicePhase::Stopping
    }
}

fn named(hung: &[Hung]) -> Option<String> {
    let names: Vec<String> = hung.iter().map(ToString::to_string).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Reports the state of a node to the service manager, for as long as this is polled.
pub(crate) async fn report(gateway: Arc<Gateway>, mut liveness: Liveness) -> Infallible {
    if std::env::var_os("NOTIFY_SOCKET").is_none_or(|path| path.is_empty()) {
        return std::future::pending().await;
    }
    let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / PINGS);
    let every = watchdog.unwrap_or(TELL);
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut phase = ServicePhase::Starting;
    let mut due = Instant::now() + every;
    loop {
        looks.tick().await;
        let next = phase.after(gateway.switches.is_leaving(), gateway.clients.quotas.is_ready());
        let is_new = next != phase;
        if !is_new && Instant::now() < due {
            continue;
        }
        phase = next;
        let hung = if is_new {
            // Too soon after the last check; the next one will show it.
            Vec::new()
        } else {
            due = Instant::now() + every;
            // Half the interval, so that a part that hangs does not delay the next ping as well.
            liveness.hung(every / 2).await
        };
        let service_state = service_state(&gateway, phase, hung);
        let words = service_state.words();
        let mut notification = vec![NotifyState::Status(&words)];
        notification.extend(phase.notification().filter(|_| is_new));
        if watchdog.is_some() && service_state.is_alive() {
            notification.push(NotifyState::Watchdog);
        }
        tell(&notification);
    }
}

/// Reports that the node ends, before that happens: the end may come within a moment.
pub(crate) fn stopping(gateway: &Gateway) {
    let words = service_state(gateway, ServicePhase::Stopping, Vec::new()).words();
    tell(&[NotifyState::Stopping, NotifyState::Status(&words)]);
}

fn service_state(gateway: &Gateway, phase: ServicePhase, hung: Vec<Hung>) -> ServiceState {
    let replicas = gateway.routing.view().replicas().len();
    ServiceState { phase, unfinished: gateway.counters.unfinished(), replicas, hung }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager can't be told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_ready_once_it_has_its_shares_and_stays_so_until_it_is_told_to_end() {
        let waits = ServicePhase::Starting.after(false, false);
        assert_eq!(waits, ServicePhase::Starting);
        assert!(waits.notification().is_none());
        let serves = waits.after(false, true);
        assert!(matches!(serves.notification(), Some(NotifyState::Ready)));
        assert_eq!(
            serves.after(false, false),
            ServicePhase::Serving,
            "lost shares are no new start"
        );
        for phase in [waits, serves] {
            assert!(matches!(phase.after(true, true).notification(), Some(NotifyState::Stopping)));
        }
        assert_eq!(ServicePhase::Stopping.after(false, true), ServicePhase::Stopping);
    }

    #[test]
    fn the_line_says_what_hangs_before_anything_else() {
        let well = ServiceState {
            phase: ServicePhase::Serving,
            unfinished: 2,
            replicas: 3,
            hung: Vec::new(),
        };
        assert_eq!(well.words(), "Serves 2 requests; 3 replicas of this region take more");
        assert!(well.is_alive());
        let hung = ServiceState { hung: vec![Hung::Worker(1), Hung::Keeper], ..well };
        assert_eq!(hung.words(), "Hangs: no answer from worker 1, keeper; the watchdog is not fed");
        assert!(!hung.is_alive());
        let ending = ServiceState { phase: ServicePhase::Stopping, ..well };
        assert_eq!(ending.words(), "Drains; 2 requests are to finish");
    }
}
