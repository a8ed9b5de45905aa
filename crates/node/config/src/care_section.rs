//! Turns the sections about a replica's checks, metrics and limits into the settings that the
//! keeper works with.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Uri;
use spillway_health::{HealthConfig, StandbyConfig};
use spillway_replicas::{DeepRequest, Mapping, NoticeCheck, ServerKind};
use spillway_types::{Millis, ModelName};
use toml::Spanned;

use crate::error::{ConfigError, ConfigErrors};
use crate::health_section::{DeepSection, HealthSection, StandbySection};
use crate::kind_settings::{DeepSettings, HealthSettings, KindSettings, MetricsSettings, Preset};
use crate::replica::{Care, Concurrency};
use crate::replica_section::{ConcurrencySection, ReplicaSection};
use crate::replica_url::check_host;
use crate::source::Source;

/// Least pause between two checks of an overflow replica that sets none itself: its server is another company's.
const OVERFLOW_CHECK: Duration = Duration::from_secs(10);
/// Longest ejection, as a multiple of the first one: a minute with the default. Much longer, a
/// replica that works again would stay out; much shorter, one that flaps would fail a request every
/// few seconds.
const EJECT_MAX_TIMES: u64 = 12;
/// Time between two deep checks of a replica that sets none.
const DEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Time limit of one deep check.
const DEEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a replica's requests to finish after a notice that its machine goes away: clouds give
/// two minutes.
const NOTICE_LIMIT: Duration = Duration::from_secs(100);

/// Defaults for all replicas that set nothing else.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CareDefaults {
    health: HealthSection,
    standby: StandbySection,
    mappings: BTreeMap<String, Mapping>,
    pub(crate) classes: BTreeMap<String, u32>,
}

impl CareDefaults {
    pub(crate) fn new(
        health: HealthSection,
        standby: StandbySection,
        classes: BTreeMap<String, u32>,
        mappings: BTreeMap<String, Mapping>,
    ) -> Self {
        Self { health, standby, mappings, classes }
    }

    fn health(&self, deep: Option<&DeepSection>) -> HealthConfig {
        let health = &self.health;
        let eject_max_ms = health.eject_ms.saturating_mul(EJECT_MAX_TIMES);
        HealthConfig {
            fall: health.fall,
            eject_after: health.eject_after,
            // A failed connection is rarely chance: three in a row are enough.
            connect_eject_after: health.eject_after.min(3),
            eject_ms: health.eject_ms,
            eject_max_ms,
            // Longer than any ejection: otherwise a flapping replica would never be ejected for
            // longer.
            eject_forget_ms: eject_max_ms.saturating_mul(2),
            slow_ratio: health.slow_ratio,
            stall_ms: health.stall_ms,
            gpu_memory_use_max: deep.and_then(|deep| deep.gpu_memory_max),
            ..HealthConfig::default()
        }
    }

    fn standby(&self) -> StandbyConfig {
        let StandbySection { queued, p99_ms } = self.standby;
        StandbyConfig {
            queue: (queued > 0.0).then_some(queued),
            p99_ms: (p99_ms > 0).then_some(p99_ms as f32),
            ..StandbyConfig::default()
        }
    }
}

impl ReplicaSection {
    /// Returns the replica's care as the config alone determines it, before its kind is detected.
    ///
    /// # Errors
    /// Returns the first fault, with its line.
    pub(crate) fn care(
        &self,
        settings: &KindSettings,
        defaults: &CareDefaults,
        source: &Source,
    ) -> Result<Care, ConfigError> {
        let models: Vec<ModelName> = self
            .models
            .iter()
            .flat_map(|models| models.get_ref().iter())
            .map(|model| ModelName::from(model.get_ref().as_str()))
            .collect();
        // A server that is yet to be recognised is cared for as a generic one until then.
        let Preset { active, deep: deep_check, scrapes, .. } = settings.preset(None, &models);
        Ok(Care {
            health: defaults.health(self.deep.as_ref().map(Spanned::get_ref)),
            slow_start: defaults.health.slow_start_ms.duration(),
            bucket: (&self.bucket).into(),
            standby: self.standby.then(|| defaults.standby()),
            warm_up: self.warm_up.clone(),
            // Its models are given, and its pages are not asked for without a reason.
            identity: settings.identity().filter(|_| !self.is_overflow()),
            active,
            deep: deep_check,
            notice: self.notice(source)?,
            notice_limit: NOTICE_LIMIT,
            scrapes,
            concurrency: self.concurrency(),
        })
    }

    /// Returns the settings whose meaning depends on the kind of server.
    ///
    /// # Errors
    /// Returns all faults, with their lines.
    pub(crate) fn kind_settings(
        &self,
        defaults: &CareDefaults,
        source: &Source,
    ) -> Result<KindSettings, ConfigErrors> {
        let (own, usual) = (&self.health, &defaults.health);
        let mut errors = ConfigErrors::default();
        let metrics = errors.keep(self.metrics_settings(defaults, source));
        let deep = errors.keep(self.deep_settings(source));
        let (Some(metrics), Some(deep)) = (metrics, deep) else { return Err(errors) };
        // A hosted API is not recognised by pages of engines, and is checked seldom.
        let kind = self.kind().or_else(|| self.is_overflow().then_some(ServerKind::Generic));
        let interval = usual.interval_ms.duration();
        let interval = if self.is_overflow() { interval.max(OVERFLOW_CHECK) } else { interval };
        let interval = own.interval_ms.map_or(interval, Millis::duration);
        let settings = KindSettings {
            kind,
            needs_models: self.models.is_none(),
            health: HealthSettings {
                check: own.check.unwrap_or(usual.check),
                path: own.path.clone(),
                port: own.port,
                service: own.service.clone(),
                interval,
                timeout: usual.timeout_ms.duration(),
            },
            metrics,
            deep,
        };
        if settings.needs_models && settings.identity().is_none() {
            let message = "which models the replica serves is not said, and it can't be asked";
            let remedy = "name them, e.g. models = [\"llama-3.1-8b\"]: only what is checked over HTTP \
                          and lists its models can be asked";
            return Err(source.fault(self.name.span(), message, remedy).into());
        }
        Ok(settings)
    }

    /// Returns the kind of concurrency limit. A configured maximum is fixed, unless the section
    /// makes it an upper bound of an adaptive limit.
    fn concurrency(&self) -> Concurrency {
        match (self.concurrency, self.connections_max) {
            (None, Some(_)) => Concurrency::Fixed,
            // Nothing is known of its queue, and its replies are no measure of this node's load.
            (None, None) if self.is_overflow() => Concurrency::Unlimited,
            (None, None) | (Some(ConcurrencySection::Adaptive), _) => Concurrency::Adaptive,
            (Some(ConcurrencySection::Unlimited), _) => Concurrency::Unlimited,
        }
    }

    fn deep_settings(&self, source: &Source) -> Result<Option<DeepSettings>, ConfigError> {
        let Some(section) = &self.deep else { return Ok(None) };
        let deep = section.get_ref();
        let request = match (&deep.path, &deep.body) {
            (Some(path), Some(body)) => {
                check_json(body, source)?;
                if !path.get_ref().starts_with('/') {
                    let remedy = "write it as /v1/completions";
                    return Err(source.fault(path.span(), "a path starts with a slash", remedy));
                }
                Some(DeepRequest::json(path.get_ref().clone(), body.get_ref().clone().into()))
            }
            (None, None) => {
                // A kind that was left out may turn out to generate text.
                if let Some(kind) = self.kind().filter(|kind| !kind.generates_text()) {
                    let message = format!("a server of kind {kind} generates no text");
                    let remedy = "give path and body of an inference";
                    return Err(source.fault(section.span(), message, remedy));
                }
                None
            }
            _ => {
                let remedy = "give both, or neither for a single generated token";
                return Err(source.fault(section.span(), "path or body is missing", remedy));
            }
        };
        Ok(Some(DeepSettings {
            request,
            expect: deep.expect.clone(),
            interval: deep.interval_ms.map_or(DEEP_INTERVAL, Millis::duration),
            timeout: DEEP_TIMEOUT,
            gpu_memory_use_max: deep.gpu_memory_max,
        }))
    }

    fn notice(&self, source: &Source) -> Result<Option<NoticeCheck>, ConfigError> {
        let Some(url) = &self.notice_url else { return Ok(None) };
        let remedy = "write it as http://host:port/path";
        let fault = |message: &str| source.fault(url.span(), message, remedy);
        let uri: Uri = url.get_ref().parse().map_err(|_| fault("not a URL"))?;
        let host = uri.host().map(|host| host.trim_matches(['[', ']']).to_owned());
        match (uri.scheme_str(), host) {
            // The check speaks no TLS, so https is refused here and not asked for in cleartext.
            (Some("http"), Some(host)) if !host.is_empty() => {
                check_host(source, url, &host)?;
                let port = uri.port_u16().unwrap_or(80);
                Ok(Some(NoticeCheck::new(host, port, uri.path().to_owned())))
            }
            _ => Err(fault("the URL is not http:// with a host")),
        }
    }

    fn metrics_settings(
        &self,
        defaults: &CareDefaults,
        source: &Source,
    ) -> Result<MetricsSettings, ConfigError> {
        let metrics = &self.metrics;
        let mapping = match &metrics.mapping {
            None => None,
            Some(name) => {
                Some(defaults.mappings.get(name.get_ref()).cloned().ok_or_else(|| {
                    let message = format!("there is no mapping {:?}", name.get_ref());
                    source.fault(name.span(), message, "add it as [mapping.NAME]")
                })?)
            }
        };
        // A kind that was left out may turn out to have metrics.
        let has_none = self.kind().filter(|kind| mapping.is_none() && kind.metrics().is_none());
        if let Some(kind) = has_none.filter(|_| metrics.scrape == Some(true)) {
            let message = format!("nothing is known of the metrics of kind {kind}");
            return Err(source.fault(self.name.span(), message, "give metrics.mapping"));
        }
        Ok(MetricsSettings {
            scrape: metrics.scrape,
            path: metrics.path.clone(),
            port: metrics.port,
            mapping,
            dcgm_port: metrics.dcgm_port,
        })
    }
}

fn check_json(body: &Spanned<String>, source: &Source) -> Result<(), ConfigError> {
    match serde_json::from_str::<serde::de::IgnoredAny>(body.get_ref()) {
        Ok(_) => Ok(()),
        Err(error) => {
            let message = format!("the body is no JSON: {error}");
            Err(source.fault(body.span(), message, "e.g. body = '{\"prompt\": \"1+1=\"}'"))
        }
    }
}
