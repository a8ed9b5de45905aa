//! A replica with everything that concerns its care: how it is checked, judged and brought in.

use std::sync::Arc;
use std::time::Duration;

use spillway_health::{CheckPeriods, HealthConfig, MemberSpec, StandbyConfig};
use spillway_proxy::{Replica, ReplicaProtocol, ReplicaSpec};
use spillway_replicas::{
    ActiveCheck, DeepCheck, Engine, HttpProtocol, IdentityCheck, NoticeCheck, Scrape, Target,
    TlsTarget,
};
use spillway_route::BucketConfig;
use spillway_types::{ModelName, PoolName};

use crate::config::{KindSettings, Preset};

/// A replica as the config or a discovery has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaConfig {
    /// What the data path needs to know.
    pub spec: ReplicaSpec,
    /// The rest.
    pub care: Care,
    /// What both follow from, as far as it depends on the kind of server.
    pub(crate) settings: Arc<KindSettings>,
    /// It comes and goes without anybody's order: it was found by name, or registered.
    pub(crate) may_vanish: bool,
}

/// How a replica is looked after.
#[derive(Clone, Debug, PartialEq)]
pub struct Care {
    /// How its health is judged.
    pub health: HealthConfig,
    /// Time in which it comes to its full share.
    pub slow_start: Duration,
    /// Its bucket, for the policy that goes by buckets.
    pub bucket: BucketConfig,
    /// Set if it is kept in reserve.
    pub standby: Option<StandbyConfig>,
    /// Prompts it is sent before it takes requests.
    pub warm_up: Vec<String>,
    /// Whether it answers.
    pub active: Option<ActiveCheck>,
    /// Whether it works.
    pub deep: Option<DeepCheck>,
    /// Whether its machine goes away.
    pub notice: Option<NoticeCheck>,
    /// How long it may finish what it has once there is such a notice.
    pub notice_limit: Duration,
    /// Which software it is and which models it says that it serves; `None` does not ask.
    pub identity: Option<IdentityCheck>,
    /// Pages that tell its load.
    pub scrapes: Vec<Scrape>,
    /// Who says how many requests it is given at a time.
    pub concurrency: Concurrency,
}

/// Who says how many requests a replica is given at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// It is found out by what the replica shows, within what the spec allows.
    Adaptive,
    /// The spec, as its operator wrote it.
    Fixed,
    /// Nobody: what the spec allows is only a bound on connections.
    Unlimited,
}

/// The longest time between two readings of a page whose period adapts.
const SCRAPE_PERIOD_MAX: Duration = Duration::from_secs(1);

impl ReplicaConfig {
    /// The replica with what was found out about it in the places that its config leaves open: its software,
    /// and the models that it lists.
    pub(crate) fn with_found(self, engine: Option<Engine>, listed: Vec<ModelName>) -> Self {
        let Self { mut spec, mut care, settings, may_vanish } = self;
        if settings.is_open() {
            if settings.needs_models {
                spec.models = listed;
            }
            let preset = settings.preset(engine, &spec.models);
            let Preset { active, deep, scrapes, continues_chats, salt_field } = preset;
            spec = ReplicaSpec { continues_chats, salt_field, ..spec };
            care = Care { active, deep, scrapes, ..care };
        }
        Self { spec, care, settings, may_vanish }
    }

    /// The replica as health sees it.
    pub(crate) fn member(&self) -> MemberSpec {
        let Care { health, slow_start, bucket, standby, warm_up, active, deep, scrapes, .. } =
            &self.care;
        let period = |scrape: &Scrape| scrape.period.unwrap_or(SCRAPE_PERIOD_MAX);
        MemberSpec {
            name: self.spec.name.clone(),
            pool: PoolName::from(self.spec.pool.as_str()),
            weight: self.spec.weight,
            models: self.spec.models.clone(),
            standby: *standby,
            needs_warm_up: !warm_up.is_empty(),
            checks: CheckPeriods {
                active: active.as_ref().map(|check| check.interval),
                deep: deep.as_ref().map(|check| check.interval),
                scrape: scrapes.iter().map(period).max(),
            },
            health: *health,
            slow_start: *slow_start,
            bucket: *bucket,
        }
    }

    /// The replica as the monitor sees it that asks what it is. Nothing that this finds out changes it.
    pub(crate) fn identity_target(&self, replica: &Replica) -> Target {
        let models = Vec::new();
        let identity = self.care.identity;
        let target = self.target(replica);
        Target {
            models,
            active: None,
            deep: None,
            notice: None,
            scrapes: Vec::new(),
            identity,
            ..target
        }
    }

    /// The replica as its monitor sees it. `replica` is the one of the view: its TLS is used.
    pub(crate) fn target(&self, replica: &Replica) -> Target {
        let Self { spec, care, .. } = self;
        let tls = replica.tls_client().map(|(config, server_name)| {
            let server_name = server_name.clone();
            TlsTarget { config: config.clone(), server_name }
        });
        Target {
            replica: spec.name.clone(),
            host: spec.host.clone(),
            port: spec.port,
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

/// A page at the port of a replica's API is spoken to as the API is.
fn with_tls(scrape: &Scrape, tls: Option<&TlsTarget>) -> Scrape {
    let is_own = scrape.host.is_none() && scrape.port.is_none();
    Scrape { tls: tls.filter(|_| is_own).cloned(), ..scrape.clone() }
}
