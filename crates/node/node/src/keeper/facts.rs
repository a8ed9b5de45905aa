//! Facts from monitors, passed on to the health crate.

use std::time::Instant;

use spillway_health::{Check, CheckError, DrainReason, Order};
use spillway_knowledge::KnowledgeEvent;
use spillway_replicas::{CacheReport, CheckKind, CheckResult, Fact, FactKind, RequestError};
use spillway_types::ReplicaName;

use super::Keeper;

impl Keeper {
    /// Takes a fact in.
    pub(super) fn note(&mut self, fact: Fact) {
        let Fact { replica, at, kind, hold: _hold } = fact;
        match kind {
            FactKind::Check { kind, result, .. } => self.note_check(at, &replica, kind, result),
            FactKind::Report { report, cache, adapters, .. } => {
                if let Some((known, report)) = self.replicas.get(&replica).zip(adapters) {
                    let names = report.names.iter().map(String::as_str);
                    known.loaded_adapters().note(names, report.slots);
                }
                // Most pages contain no figures of caches.
                if cache != CacheReport::default() {
                    self.knowledge.tell(KnowledgeEvent::Reported(replica.clone(), cache));
                }
                self.metrics.record_check(replica.as_str(), "scrape", "good");
                self.fleet.handle_check(at, &replica, Check::Scrape, Ok(()));
                let in_flight = self
                    .replicas
                    .get(&replica)
                    .map_or(0, |known| known.in_flight().saturating_add(known.elsewhere()));
                self.limits.reported(&replica, &report, at);
                self.fleet.handle_report(at, &replica, report, in_flight);
            }
            FactKind::ScrapeFailed { failure, .. } => {
                self.metrics.record_check(replica.as_str(), "scrape", failure.as_str());
                // A server without such a page, or with too long a one, is no less alive.
                if matches!(
                    failure,
                    RequestError::Refused
                        | RequestError::Connect
                        | RequestError::TimedOut
                        | RequestError::Broken
                ) {
                    let result = Err(fault_of(failure));
                    self.fleet.handle_check(at, &replica, Check::Scrape, result);
                }
            }
            FactKind::Models(page) => {
                let Some(known) = self.replicas.get(&replica) else { return };
                if self.pages.note(&replica, known, page) {
                    let mut configs = self.folded.replicas.iter();
                    let config = configs.find(|config| config.spec.name == replica);
                    if config.is_some_and(|config| config.needs_models()) {
                        self.pages.tell_listed(&replica);
                    }
                    self.has_news = true;
                }
            }
            FactKind::ModelsDenied(status) => {
                let Some(known) = self.replicas.get(&replica) else { return };
                self.has_news |= self.pages.note_page_denied(&replica, known, status);
            }
            FactKind::ModelsUnread => {}
            FactKind::Engine(engine) => {
                let Some(known) = self.replicas.get(&replica) else { return };
                self.has_news |= self.pages.note_engine(&replica, known, engine);
            }
            FactKind::Notice => self.drain_for_notice(&replica),
            // The cluster's order to drain the replica stands.
            FactKind::NoticeWithdrawn if self.agreed.drains(&replica) => {}
            FactKind::NoticeWithdrawn => self.order_if_known(&replica, Order::Resume),
        }
    }

    fn note_check(
        &mut self,
        at: Instant,
        replica: &ReplicaName,
        kind: CheckKind,
        result: CheckResult,
    ) {
        self.metrics.record_check(replica.as_str(), kind.as_str(), result.as_str());
        if result == CheckResult::Failed(RequestError::BadRequest) {
            return tracing::warn!(%replica, check = kind.as_str(), "the check can't be made");
        }
        let check = match kind {
            CheckKind::Active => Check::Active,
            CheckKind::Deep => Check::Deep,
        };
        if kind == CheckKind::Active && result != CheckResult::Good {
            self.failing.insert(replica.clone());
        } else if kind == CheckKind::Active && self.failing.remove(replica) {
            // The server may have been restarted with other software.
            self.identities.identify_again(replica);
        }
        if result == CheckResult::Failed(RequestError::Refused) {
            // The process has ended. A check that merely took too long says nothing of its memory.
            self.forget_adapters(replica);
        }
        let result = match result {
            CheckResult::Good => Ok(()),
            // Neither good nor bad: the replica had no time for the check.
            CheckResult::Busy => return,
            CheckResult::NotReady => Err(CheckError::NotReady),
            CheckResult::MemoryFull => Err(CheckError::MemoryFull),
            CheckResult::Failed(failure) => Err(fault_of(failure)),
        };
        self.fleet.handle_check(at, replica, check, result);
    }

    /// Forgets the adapters in a replica's memory: it was restarted, or may have been.
    pub(super) fn forget_adapters(&self, replica: &ReplicaName) {
        if let Some(known) = self.replicas.get(replica) {
            known.loaded_adapters().forget();
        }
    }

    /// Drains a replica whose machine will be gone soon.
    fn drain_for_notice(&mut self, replica: &ReplicaName) {
        let config = self.folded.replicas.iter().find(|config| config.spec.name == *replica);
        let Some(config) = config else { return };
        let limit = config.care.notice_limit;
        self.order_if_known(replica, Order::Drain { limit, why: DrainReason::Preemption });
    }

    fn order_if_known(&mut self, replica: &ReplicaName, order: Order) {
        if let Err(unknown) = self.fleet.handle_order(Instant::now(), replica, order) {
            tracing::debug!(%unknown, "a notice for a replica that left");
        }
    }
}

fn fault_of(failure: RequestError) -> CheckError {
    match failure {
        RequestError::TimedOut => CheckError::Timeout,
        RequestError::Status(status) => CheckError::Status(status),
        RequestError::GrpcStatus(_) => CheckError::Unhealthy,
        RequestError::WrongAnswer => CheckError::WrongAnswer,
        RequestError::TooLarge | RequestError::BadRequest => CheckError::Malformed,
        RequestError::NameNotFound => CheckError::NameUnresolved,
        RequestError::NameServer => CheckError::NameServer,
        RequestError::Refused => CheckError::Refused,
        // Monitors report no shortage: it is none of the replica.
        RequestError::Connect | RequestError::Shortage => CheckError::Unreachable,
        RequestError::Tls(fault) => CheckError::Tls(fault),
        RequestError::Broken => CheckError::Broken,
    }
}
