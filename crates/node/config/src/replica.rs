//! A replica with everything about its care: checks, health, and the way into service.

use std::sync::Arc;
use std::time::Duration;

use spillway_health::{CheckPeriods, HealthConfig, MemberSpec, StandbyConfig};
use spillway_replicas::{
    ActiveCheck, DeepCheck, Engine, HttpProtocol, IdentityCheck, NoticeCheck, ReplicaTarget,
    Scrape, ServerKind, TlsTarget,
};
use spillway_route::BucketConfig;
use spillway_types::{ModelName, PoolName};
use spillway_upstream::ReplicaProtocol;
use spillway_view::{Replica, ReplicaSpec};

use crate::kind_settings::{KindSettings, Preset};
use crate::overflow_terms::OverflowTerms;

/// A replica as the config or a discovery has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaConfig {
    /// Settings for the data path.
    pub spec: ReplicaSpec,
    /// Settings for checks, health and load.
    pub care: Care,
    /// Settings from which both follow where they depend on the kind of server.
    pub(crate) settings: Arc<KindSettings>,
    /// Price and budget, if it is an overflow replica.
    pub overflow: Option<OverflowTerms>,
    /// True if the replica comes and goes without an order: it was found by name, or registered.
    pub may_vanish: bool,
}

/// Checks of a replica, and the settings of its health and load.
#[derive(Clone, Debug, PartialEq)]
pub struct Care {
    /// Thresholds of its health.
    pub health: HealthConfig,
    /// Time of slow start, in which it comes to its full share.
    pub slow_start: Duration,
    /// Bucket for the policy `token_bucket`.
    pub bucket: BucketConfig,
    /// Conditions for bringing it in; `None` if it is not kept in reserve.
    pub standby: Option<StandbyConfig>,
    /// Prompts that it is sent before it takes requests.
    pub warm_up: Vec<String>,
    /// Check that it answers.
    pub active: Option<ActiveCheck>,
    /// Check that it can run an inference.
    pub deep: Option<DeepCheck>,
    /// Check for a notice that its machine goes away.
    pub notice: Option<NoticeCheck>,
    /// Time limit for its requests to finish after such a notice.
    pub notice_limit: Duration,
    /// Question about its software and models; `None` does not ask.
    pub identity: Option<IdentityCheck>,
    /// Pages to read its load from.
    pub scrapes: Vec<Scrape>,
    /// Method of limiting its requests at a time.
    pub concurrency: Concurrency,
}

/// Method of limiting the number of requests that a replica is given at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// Adaptive limit by what the replica shows, with the spec's as its maximum.
    Adaptive,
    /// Fixed limit from the spec, as its operator wrote it.
    Fixed,
    /// No limit: the spec's is only a bound on connections.
    Unlimited,
}

/// Longest time between two readings of a page whose period adapts.
const SCRAPE_PERIOD_MAX: Duration = Duration::from_secs(1);

impl ReplicaConfig {
    /// Returns true if the config names no models for the replica: then it serves those that it
    /// lists.
    #[must_use]
    pub fn needs_models(&self) -> bool {
        self.settings.needs_models
    }

    /// Returns the kind of its server; `None` if the config left it out, so that the server has to
    /// be recognised.
    #[must_use]
    pub fn kind(&self) -> Option<ServerKind> {
        self.settings.kind
    }

    /// Fills in settings that the config leaves open and that were found out: the replica's
    /// software, and the models that it lists.
    pub fn with_found(self, engine: Option<Engine>, listed: Vec<ModelName>) -> Self {
        let Self { mut spec, mut care, settings, overflow, may_vanish } = self;
        // Values of the config are never replaced by the server's own reports.
        if settings.is_open() {
            if settings.needs_models {
                spec.models = listed;
            }
            let preset = settings.preset(engine, &spec.models);
            let Preset { active, deep, scrapes, continues_chats, salt_field, usage_reports } =
                preset;
            spec = ReplicaSpec { continues_chats, salt_field, usage_reports, ..spec };
            care = Care { active, deep, scrapes, ..care };
        }
        Self { spec, care, settings, overflow, may_vanish }
    }

    /// Returns the replica in the form of the health crate.
    pub fn member(&self) -> MemberSpec {
        let Care { health, slow_start, bucket, standby, warm_up, active, deep, scrapes, .. } =
            &self.care;
        let period = |scrape: &Scrape| scrape.period.unwrap_or(SCRAPE_PERIOD_MAX);
        // Overflow replicas are compared with each other alone, and any of them may be left out.
        let (pool, ejected_share_percent) = match &self.spec.overflow {
            Some(_) => (format!("{} (overflow)", self.spec.pool), 100),
            None => (self.spec.pool.clone(), health.ejected_share_percent),
        };
        MemberSpec {
            name: self.spec.name.clone(),
            pool: PoolName::from(pool.as_str()),
            weight: self.spec.weight,
            models: self.spec.models.clone(),
            standby: *standby,
            needs_warm_up: !warm_up.is_empty(),
            checks: CheckPeriods {
                active: active.as_ref().map(|check| check.interval),
                deep: deep.as_ref().map(|check| check.interval),
                scrape: scrapes.iter().map(period).max(),
            },
            health: HealthConfig { ejected_share_percent, ..*health },
            slow_start: *slow_start,
            bucket: *bucket,
        }
    }

    /// Returns the target of the monitor that asks for software and models. Its answers do not
    /// change this target.
    pub fn identity_target(&self, replica: &Replica) -> ReplicaTarget {
        let models = Vec::new();
        let identity = self.care.identity;
        let target = self.target(replica);
        ReplicaTarget {
            models,
            active: None,
            deep: None,
            notice: None,
            scrapes: Vec::new(),
            identity,
            ..target
        }
    }

    /// Returns the target of the replica's monitor. `replica` is the one of the view: its TLS is
    /// used.
    pub fn target(&self, replica: &Replica) -> ReplicaTarget {
        let Self { spec, care, .. } = self;
        let tls = replica.connections().tls_client().map(|(config, server_name)| {
            let server_name = server_name.clone();
            TlsTarget { config: config.clone(), server_name }
        });
        ReplicaTarget {
            replica: spec.name.clone(),
            resolver: replica.connections().resolver().clone(),
            host: spec.host.clone(),
            port: spec.port,
            base: spec.base.clone(),
            protocol: match spec.protocol {
                ReplicaProtocol::Http1 => HttpProtocol::Http1,
                ReplicaProtocol::Http2 => HttpProtocol::Http2,
            },
            headers: spec.credential.iter().cloned().collect(),
            models: spec.models.clone(),
            active: care.active.clone(),
            deep: care.deep.clone(),
            notice: care.notice.clone(),
            identity: None,
            scrapes: care.scrapes.iter().map(|scrape| with_tls(scrape, tls.as_ref())).collect(),
            tls,
        }
    }
}

/// Gives a page at the port of the replica's API the API's TLS.
fn with_tls(scrape: &Scrape, tls: Option<&TlsTarget>) -> Scrape {
    // The API's TLS does not imply TLS for an exporter at another port, which is asked in
    // cleartext.
    let is_own = scrape.host.is_none() && scrape.port.is_none();
    Scrape { tls: tls.filter(|_| is_own).cloned(), ..scrape.clone() }
}
