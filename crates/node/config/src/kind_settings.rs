//! Settings of a replica's care that depend on its server software, with the config's overrides.

use std::time::Duration;

use spillway_protocol::SaltField;
use spillway_replicas::{
    ActiveCheck, DeepCheck, DeepRequest, Engine, Expectation, IdentityCheck, Mapping, Probe,
    Scrape, ServerKind,
};
use spillway_types::ModelName;
use spillway_view::UsageReports;

use crate::health_section::CheckChoice;

/// Time limit for reading one page of metrics.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(1);

/// Settings that the config gives for everything that depends on the kind of a replica's server. A
/// given setting wins over the kind's own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KindSettings {
    /// Kind of the server; `None` if it was left out, so that the server has to be recognised.
    pub(crate) kind: Option<ServerKind>,
    /// True if the config names no models for the replica: then it serves those that it lists.
    pub(crate) needs_models: bool,
    pub(crate) health: HealthSettings,
    pub(crate) metrics: MetricsSettings,
    pub(crate) deep: Option<DeepSettings>,
}

/// Settings of the active check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HealthSettings {
    pub(crate) check: CheckChoice,
    pub(crate) path: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) service: Option<String>,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
}

/// Settings of reading a replica's load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MetricsSettings {
    pub(crate) scrape: Option<bool>,
    pub(crate) path: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) mapping: Option<Mapping>,
    pub(crate) dcgm_port: Option<u16>,
}

/// Settings of the deep check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeepSettings {
    /// Request to send; `None` for one token by the API of its kind.
    pub(crate) request: Option<DeepRequest>,
    pub(crate) expect: Option<Expectation>,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) gpu_memory_use_max: Option<f32>,
}

/// Checks, scrapes and features of a server of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Preset {
    pub(crate) active: Option<ActiveCheck>,
    pub(crate) deep: Option<DeepCheck>,
    pub(crate) scrapes: Vec<Scrape>,
    pub(crate) continues_chats: bool,
    pub(crate) salt_field: Option<SaltField>,
    pub(crate) usage_reports: UsageReports,
}

impl KindSettings {
    /// Returns true if the replica's kind or models have to be found out.
    pub(crate) fn is_open(&self) -> bool {
        self.kind.is_none() || self.needs_models
    }

    /// Returns the preset for a replica that serves these models. `engine` is the recognised
    /// software; `None` if it is not recognised yet.
    pub(crate) fn preset(&self, engine: Option<Engine>, models: &[ModelName]) -> Preset {
        let engine = match self.kind {
            Some(kind) => Engine::assumed(kind),
            None => engine.unwrap_or_else(|| Engine::assumed(ServerKind::Generic)),
        };
        // TensorFlow Serving has no health of the server, only of a model.
        let has_health = engine.kind != ServerKind::TfServing || !models.is_empty();
        let engine = Engine { has_health: engine.has_health && has_health, ..engine };
        Preset {
            active: self.health.active(engine),
            deep: self.deep.as_ref().and_then(|deep| deep.check(engine.kind, models)),
            scrapes: self.metrics.scrapes(engine),
            continues_chats: engine.kind.continues_chats(),
            salt_field: salt_field(engine.kind),
            usage_reports: usage_reports(engine.kind),
        }
    }

    /// Returns the question that finds out the replica's kind and models; `None` if checks are off,
    /// since an operator who wants no checks wants no questions, or if the port speaks only gRPC
    /// and has no pages.
    pub(crate) fn identity(&self) -> Option<IdentityCheck> {
        let HealthSettings { check, interval, timeout, .. } = &self.health;
        let has_pages = self
            .kind
            .is_none_or(|kind| kind.may_list_models() || (self.needs_models && kind.has_index()));
        let is_asked = has_pages && !matches!(check, CheckChoice::Off | CheckChoice::Grpc);
        is_asked.then_some(IdentityCheck {
            kind: self.kind,
            needs_models: self.needs_models,
            retry: *interval,
            timeout: *timeout,
        })
    }
}

impl HealthSettings {
    fn active(&self, engine: Engine) -> Option<ActiveCheck> {
        let port = self.port;
        // A given path is more specific than an unknown kind, or than a kind that does not answer
        // at its own path.
        let has_path =
            self.path.is_some() || (engine.kind != ServerKind::Generic && engine.has_health);
        let probe = match self.check {
            CheckChoice::Off => return None,
            CheckChoice::Tcp => Probe::Tcp { port },
            CheckChoice::Grpc => {
                Probe::Grpc { service: self.service.clone().unwrap_or_default(), port }
            }
            CheckChoice::ByKind if !has_path => Probe::Tcp { port },
            // A path alone is no reason to drop the settings of the kind: its port, and its answer
            // while a model still loads.
            CheckChoice::Http | CheckChoice::ByKind => match engine.kind.probe() {
                Probe::Http { path, port: kind_port, not_ready, expect } => Probe::Http {
                    // The kind knows what its own page answers, not what another one does.
                    expect: expect.filter(|_| self.path.is_none()),
                    path: self.path.clone().unwrap_or(path),
                    port: port.or(kind_port),
                    not_ready,
                },
                other => other,
            },
        };
        Some(ActiveCheck { probe, interval: self.interval, timeout: self.timeout })
    }
}

impl MetricsSettings {
    fn scrapes(&self, engine: Engine) -> Vec<Scrape> {
        let of_kind = engine.kind.metrics();
        let page = |port: Option<u16>, path: Option<&str>, mapping: Mapping| Scrape {
            host: None,
            port,
            tls: None,
            path: path.unwrap_or("/metrics").to_owned(),
            mapping,
            period: None,
            timeout: SCRAPE_TIMEOUT,
        };
        // A page whose place is configured was not looked for elsewhere.
        let is_there = engine.has_metrics
            || self.scrape == Some(true)
            || self.port.is_some()
            || self.path.is_some();
        let by_kind = of_kind.as_ref().filter(|_| is_there).map(|of_kind| of_kind.mapping.clone());
        let mapping = self.mapping.clone().or(by_kind).filter(|_| self.scrape != Some(false));
        let own = mapping.map(|mapping| {
            let port = self.port.or_else(|| of_kind.and_then(|of_kind| of_kind.port));
            page(port, self.path.as_deref(), mapping)
        });
        let exporter = self.dcgm_port.map(|port| page(Some(port), None, Mapping::dcgm()));
        own.into_iter().chain(exporter).collect()
    }
}

impl DeepSettings {
    /// Returns the check; `None` if a server of this kind needs a body and none is given, or no
    /// model is known.
    fn check(&self, kind: ServerKind, models: &[ModelName]) -> Option<DeepCheck> {
        let of_kind = || models.first().and_then(|model| kind.inference(model));
        Some(DeepCheck {
            request: self.request.clone().or_else(of_kind)?,
            expect: self.expect.clone(),
            interval: self.interval,
            timeout: self.timeout,
            gpu_memory_use_max: self.gpu_memory_use_max,
        })
    }
}

/// Returns the field of a request by which such a server keeps cache entries of prompts apart.
fn salt_field(kind: ServerKind) -> Option<SaltField> {
    match kind {
        ServerKind::Vllm => Some(SaltField::CacheSalt),
        ServerKind::Sglang => Some(SaltField::ExtraKey),
        ServerKind::Triton
        | ServerKind::Tgi
        | ServerKind::LlamaCpp
        | ServerKind::MlServer
        | ServerKind::TorchServe
        | ServerKind::TfServing
        | ServerKind::Ollama
        | ServerKind::LlamaCppPython
        | ServerKind::Generic => None,
    }
}

/// Returns the usage reports that such a server gives in streams. Servers with strict schemas refuse
/// requests that ask for more than they know, so only kinds that are known to report are listed.
pub(crate) fn usage_reports(kind: ServerKind) -> UsageReports {
    match kind {
        ServerKind::Vllm | ServerKind::Sglang => UsageReports::Throughout,
        ServerKind::LlamaCpp => UsageReports::AtEnd,
        ServerKind::Triton
        | ServerKind::Tgi
        | ServerKind::MlServer
        | ServerKind::TorchServe
        | ServerKind::TfServing
        | ServerKind::Ollama
        | ServerKind::LlamaCppPython
        | ServerKind::Generic => UsageReports::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(kind: Option<ServerKind>) -> KindSettings {
        KindSettings {
            kind,
            needs_models: false,
            health: HealthSettings {
                check: CheckChoice::ByKind,
                path: None,
                port: None,
                service: None,
                interval: Duration::from_secs(1),
                timeout: Duration::from_secs(1),
            },
            metrics: MetricsSettings {
                scrape: None,
                path: None,
                port: None,
                mapping: None,
                dcgm_port: None,
            },
            deep: None,
        }
    }

    fn path(preset: &Preset) -> Option<&str> {
        match &preset.active.as_ref()?.probe {
            Probe::Http { path, .. } => Some(path),
            Probe::Tcp { .. } | Probe::Grpc { .. } => None,
        }
    }

    const VLLM: Engine = Engine { kind: ServerKind::Vllm, has_health: true, has_metrics: true };

    #[test]
    fn what_was_recognised_is_used_where_nobody_said_a_kind() {
        let open = settings(None);
        let before = open.preset(None, &[]);
        assert_eq!((path(&before), before.scrapes.len()), (None, 0));
        assert_eq!(before, settings(Some(ServerKind::Generic)).preset(None, &[]));
        let found = open.preset(Some(VLLM), &[]);
        assert_eq!(found, settings(Some(ServerKind::Vllm)).preset(None, &[]));
        assert_eq!((path(&found), found.scrapes.len()), (Some("/health"), 1));
        assert!(found.continues_chats && found.salt_field.is_some());
        assert_eq!(before.usage_reports, UsageReports::None);
        assert_eq!(found.usage_reports, UsageReports::Throughout);
        let generic = settings(Some(ServerKind::Generic));
        assert_eq!(generic.preset(Some(VLLM), &[]), before);
    }

    #[test]
    fn pages_that_the_server_does_not_show_are_not_asked_for() {
        let hidden = Engine { has_health: false, has_metrics: false, ..VLLM };
        let mut open = settings(None);
        let preset = open.preset(Some(hidden), &[]);
        assert_eq!((path(&preset), preset.scrapes.len()), (None, 0));
        assert!(preset.continues_chats);
        // The config gives their place.
        open.metrics.port = Some(9_000);
        open.health.path = Some("/up".to_owned());
        let preset = open.preset(Some(hidden), &[]);
        assert_eq!((path(&preset), preset.scrapes.len()), (Some("/up"), 1));
    }

    #[test]
    fn what_was_set_wins_over_what_was_recognised() {
        let mut open = settings(None);
        open.metrics.scrape = Some(false);
        open.health.check = CheckChoice::Tcp;
        let preset = open.preset(Some(VLLM), &[]);
        assert_eq!((path(&preset), preset.scrapes.len()), (None, 0));
        open.health.check = CheckChoice::Off;
        assert_eq!((open.preset(Some(VLLM), &[]).active, open.identity()), (None, None));
    }

    #[test]
    fn a_token_is_asked_for_once_a_model_is_known() {
        let second = Duration::from_secs(1);
        let deep = DeepSettings {
            request: None,
            expect: None,
            interval: second,
            timeout: second,
            gpu_memory_use_max: None,
        };
        let open = KindSettings { deep: Some(deep), ..settings(None) };
        assert_eq!(open.preset(Some(VLLM), &[]).deep, None);
        let model = ModelName::from("tiny");
        let check = open.preset(Some(VLLM), std::slice::from_ref(&model)).deep;
        assert_eq!(check.map(|check| check.request), Some(DeepRequest::Chat { model }));
        let tensorflow = Engine::assumed(ServerKind::TfServing);
        assert_eq!(path(&open.preset(Some(tensorflow), &[])), None);
        assert_eq!(path(&open.preset(Some(tensorflow), &["m".into()])), Some("/v1/models/{model}"));
        let triton = Engine::assumed(ServerKind::Triton);
        assert_eq!(open.preset(Some(triton), &["m".into()]).deep, None);
    }

    #[test]
    fn who_can_tell_is_asked() {
        let of = |kind, needs_models| {
            let settings = KindSettings { needs_models, ..settings(kind) };
            settings.identity().is_some()
        };
        assert!(of(None, false) && of(Some(ServerKind::Vllm), false));
        assert!(of(Some(ServerKind::Triton), true) && !of(Some(ServerKind::Triton), false));
        assert!(!of(Some(ServerKind::TorchServe), true) && !of(Some(ServerKind::TfServing), true));
    }
}
