//! Software and models that replicas report of themselves, and the contradictions to the config.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_config::ReplicaConfig;
use spillway_health::MemberReport;
use spillway_replicas::Engine;
use spillway_types::{ModelName, ModelsPage, ReplicaName};
use spillway_view::{ModelCards, Replica};

use super::page_room::PageRoom;

/// Software that serves its one model under any name, by the owner in its pages.
const NAMELESS: [&str; 2] = ["llamacpp", "sglang"];
/// Time for which a replica's own reply that it lacks a model counts, if its page of models is not
/// read again before.
const LACKED_FOR: Duration = Duration::from_secs(10);
/// Maximum number of a page's models that a log line lists.
const SHOWN_MAX: usize = 5;

/// Newest pages of all replicas, and what follows from them.
#[derive(Debug, Default)]
pub(super) struct Pages {
    reports: BTreeMap<ReplicaName, PageReport>,
    room: PageRoom,
    /// Models that replicas should serve, and say they do not have.
    denied: BTreeMap<ReplicaName, BTreeSet<ModelName>>,
    /// Replicas whose pages list several models.
    several: BTreeSet<ReplicaName>,
    cards: Arc<ModelCards>,
}

/// Newest report of one replica about itself.
#[derive(Debug)]
struct PageReport {
    replica: Arc<Replica>,
    /// Software of the server; `None` while its pages do not show it.
    engine: Option<Engine>,
    models: Models,
    /// Models that the replica lacks by its replies to requests, each with the time since when.
    lacked: BTreeMap<ModelName, Instant>,
}

/// Report of a replica on its models.
#[derive(Clone, Debug, Default, PartialEq)]
enum Models {
    /// The replica was not reached yet.
    #[default]
    Unread,
    /// The replica has no page of models.
    Unlisted,
    /// The replica demands another credential for its page of models, with this status.
    Denied(u16),
    /// The page of models.
    Page(Arc<ModelsPage>),
}

impl Models {
    fn page(&self) -> Option<&Arc<ModelsPage>> {
        match self {
            Self::Page(page) => Some(page),
            Self::Unread | Self::Unlisted | Self::Denied(_) => None,
        }
    }
}

impl PageReport {
    /// Returns what is wrong with a replica that serves: it lacks models, or does not show them.
    fn reason(&self, denied: &[ModelName]) -> Option<String> {
        let names = |names: &[ModelName]| {
            names.iter().map(ModelName::as_str).collect::<Vec<_>>().join(", ")
        };
        match (&self.models, denied) {
            (Models::Denied(status), _) => {
                Some(format!("/v1/models gets status {status}: set its credential"))
            }
            (_, []) => None,
            (Models::Page(page), denied) => {
                let told: Vec<ModelName> = page.ids().take(SHOWN_MAX).cloned().collect();
                Some(format!("serves {}, not {}", names(&told), names(denied)))
            }
            (_, denied) => Some(format!("does not have {}", names(denied))),
        }
    }

    fn page(&self) -> Option<&Arc<ModelsPage>> {
        self.models.page()
    }

    /// Returns those of its models that the replica says it does not have, by its page or replies.
    fn denied(&self, config: &ReplicaConfig) -> BTreeSet<ModelName> {
        let models = &config.spec.models;
        let mut denied = self.denied_by_page(config);
        denied.extend(models.iter().filter(|model| self.lacked.contains_key(*model)).cloned());
        denied
    }

    fn denied_by_page(&self, config: &ReplicaConfig) -> BTreeSet<ModelName> {
        let kind = config.kind().or_else(|| self.engine.map(|engine| engine.kind));
        let page = self.page().filter(|_| kind.is_none_or(|kind| !kind.takes_any_name()));
        page.map_or_else(BTreeSet::new, |page| denied_by(page, &config.spec.models))
    }
}

impl Pages {
    /// Takes in a reading of a replica's page of models. Returns true if it is news.
    pub(super) fn note(
        &mut self,
        name: &ReplicaName,
        replica: &Arc<Replica>,
        page: Option<Arc<ModelsPage>>,
    ) -> bool {
        self.note_models(name, replica, page.map_or(Models::Unlisted, Models::Page))
    }

    /// Notes that a replica demands another credential for its page of models. Returns true if it is
    /// news.
    pub(super) fn note_page_denied(
        &mut self,
        name: &ReplicaName,
        replica: &Arc<Replica>,
        status: u16,
    ) -> bool {
        let is_news = self.note_models(name, replica, Models::Denied(status));
        if is_news {
            tracing::warn!(
                replica = %name,
                status,
                "the replica does not show its models: set its `credential`",
            );
        }
        is_news
    }

    fn note_models(&mut self, name: &ReplicaName, replica: &Arc<Replica>, models: Models) -> bool {
        let before = self.report(name, replica).models.clone();
        let models = self.hold(name, &before, models);
        if before == models {
            return false;
        }
        let report = self.report(name, replica);
        // The page that was just read is newer than replies to requests.
        report.lacked.clear();
        report.models = models;
        true
    }

    /// Returns what is kept of a replica's answer in place of the last: of a page, as much as there is
    /// room for.
    fn hold(&mut self, name: &ReplicaName, before: &Models, models: Models) -> Models {
        if *before == models {
            return models;
        }
        match models {
            Models::Page(page) => {
                let listed = page.ids().len();
                let kept = self.room.replace(before.page().map(Arc::as_ref), page);
                let kept_count = kept.ids().len();
                let kept = Models::Page(kept);
                if kept_count < listed && *before != kept {
                    tracing::warn!(
                        replica = %name,
                        listed,
                        kept = kept_count,
                        "the replicas list more models than there is room for: name them in `models`"
                    );
                }
                kept
            }
            other => {
                if let Some(page) = before.page() {
                    self.room.remove(page);
                }
                other
            }
        }
    }

    /// Notes that a replica said in reply to a request that it does not have one of its models.
    /// Returns true if it is news.
    pub(super) fn note_lacked(
        &mut self,
        name: &ReplicaName,
        replica: &Arc<Replica>,
        model: &ModelName,
        at: Instant,
    ) -> bool {
        if !replica.spec().models.contains(model) {
            return false;
        }
        let report = self.report(name, replica);
        let is_news = report.lacked.insert(model.clone(), at).is_none();
        if is_news {
            tracing::warn!(replica = %name, %model, "the replica reports that it does not have the model");
        }
        is_news
    }

    /// Forgets replies about missing models that are old. Returns true if there were any.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let mut is_any = false;
        for report in self.reports.values_mut().filter(|report| !report.lacked.is_empty()) {
            let count = report.lacked.len();
            report.lacked.retain(|_, since| now < *since + LACKED_FOR);
            is_any |= report.lacked.len() < count;
        }
        is_any
    }

    /// Logs the models that a replica lists and the config does not name.
    pub(super) fn tell_listed(&self, name: &ReplicaName) {
        match self.reports.get(name).map(|report| &report.models) {
            Some(Models::Page(page)) => {
                let models = shown(&mut page.ids());
                tracing::info!(replica = %name, models, "models were discovered");
            }
            Some(Models::Unlisted) => {
                tracing::warn!(replica = %name, "it lists no models: name them in its `models`");
            }
            Some(Models::Unread | Models::Denied(_)) | None => {}
        }
    }

    /// Takes in the software that a replica was recognised as. Returns true if it is news.
    pub(super) fn note_engine(
        &mut self,
        name: &ReplicaName,
        replica: &Arc<Replica>,
        engine: Option<Engine>,
    ) -> bool {
        let report = self.report(name, replica);
        if report.engine == engine {
            return false;
        }
        let before = report.engine.map(|engine| engine.kind);
        report.engine = engine;
        match engine.map(|engine| engine.kind) {
            kind if kind == before => {}
            Some(kind) => tracing::info!(replica = %name, %kind, "recognised by its own pages"),
            None => {
                tracing::info!(replica = %name, "is no longer the server that it was recognised as");
            }
        }
        true
    }

    fn report(&mut self, name: &ReplicaName, replica: &Arc<Replica>) -> &mut PageReport {
        self.reports.entry(name.clone()).or_insert_with(|| PageReport {
            replica: Arc::clone(replica),
            engine: None,
            models: Models::Unread,
            lacked: BTreeMap::new(),
        })
    }

    /// Fills in what the config leaves open and the replica has reported.
    pub(super) fn fill(&self, config: ReplicaConfig) -> ReplicaConfig {
        let report = self.reports.get(&config.spec.name);
        let engine = report.and_then(|report| report.engine);
        let listed = report.and_then(PageReport::page).into_iter().flat_map(|page| page.ids());
        // Names of models appear in logs and metrics.
        let usable = listed.filter(|id| !id.as_str().chars().any(char::is_control));
        config.with_found(engine, usable.cloned().collect())
    }

    /// Returns the replicas whose models are still unknown.
    pub(super) fn unread<'a>(
        &'a self,
        configs: &'a [ReplicaConfig],
    ) -> impl Iterator<Item = &'a ReplicaName> {
        let open = configs.iter().filter(|config| config.needs_models());
        open.map(|config| &config.spec.name).filter(|name| {
            self.reports.get(*name).is_none_or(|report| report.models == Models::Unread)
        })
    }

    /// Forgets reports of replicas that are gone, or are other servers now.
    pub(super) fn retain(&mut self, configs: &[ReplicaConfig]) {
        let specs: BTreeMap<_, _> =
            configs.iter().map(|config| (&config.spec.name, &config.spec)).collect();
        self.reports.retain(|name, report| {
            let is_kept =
                specs.get(name).is_some_and(|spec| report.replica.with_spec(spec).is_some());
            if let Some(page) = report.page().filter(|_| !is_kept) {
                self.room.remove(page);
            }
            is_kept
        });
    }

    /// Takes over the replicas, and logs models that are newly denied.
    pub(super) fn reconcile(&mut self, configs: &[ReplicaConfig]) {
        let reports = configs
            .iter()
            .filter_map(|config| Some((config, self.reports.get(&config.spec.name)?)));
        let reports: Vec<_> = reports.collect();
        let denied = reports.iter().filter_map(|(config, report)| {
            let denied = report.denied(config);
            (!denied.is_empty()).then(|| (config.spec.name.clone(), denied))
        });
        let denied: BTreeMap<ReplicaName, BTreeSet<ModelName>> = denied.collect();
        for (config, report) in &reports {
            let name = &config.spec.name;
            let by_page = report.denied_by_page(config);
            if !by_page.is_empty()
                && denied.get(name) != self.denied.get(name)
                && let Some(page) = report.page()
            {
                tell(name, page, &by_page);
            }
        }
        let pages =
            || reports.iter().filter_map(|(config, report)| Some((&config.spec, report.page()?)));
        let cards = pages().flat_map(|(spec, page)| {
            spec.models.iter().filter_map(|model| Some((model, page.get(model)?)))
        });
        self.cards = Arc::new(ModelCards::new(cards));
        let several = pages().filter(|(_, page)| page.ids().len() > 1);
        self.several = several.map(|(spec, _)| spec.name.clone()).collect();
        self.denied = denied;
    }

    /// Returns the replicas whose pages list several models.
    pub(super) fn several(&self) -> &BTreeSet<ReplicaName> {
        &self.several
    }

    /// Returns the models that replicas should serve and say they do not have, by replica.
    pub(super) fn denied(&self) -> &BTreeMap<ReplicaName, BTreeSet<ModelName>> {
        &self.denied
    }

    /// Returns the model cards that clients are shown.
    pub(super) fn cards(&self) -> Arc<ModelCards> {
        Arc::clone(&self.cards)
    }

    /// Adds the replica's own report to a report on it.
    pub(super) fn complete(&self, member: &mut MemberReport, config: Option<&ReplicaConfig>) {
        let report = self.reports.get(&member.name);
        let page = report.and_then(PageReport::page);
        member.models_told = page.map(|page| page.ids().cloned().collect());
        let denied = self.denied.get(&member.name);
        member.models_denied = denied.into_iter().flatten().cloned().collect();
        let given = config.and_then(|config| config.kind());
        let found = report.and_then(|report| report.engine).map(|engine| engine.kind);
        member.kind = given.or(found).map(|kind| kind.as_str());
        member.is_kind_recognised = given.is_none() && found.is_some();
        member.models_status = report.and_then(|report| match report.models {
            Models::Denied(status) => Some(status),
            Models::Unread | Models::Unlisted | Models::Page(_) => None,
        });
        if member.reason.is_none() {
            member.reason = report.and_then(|report| report.reason(&member.models_denied));
        }
    }
}

/// Returns the models that a replica should serve, and says it does not have.
fn denied_by(page: &ModelsPage, models: &[ModelName]) -> BTreeSet<ModelName> {
    if page.owner().is_some_and(|owner| NAMELESS.contains(&owner)) || names_itself(page) {
        return BTreeSet::new();
    }
    // Ollama lists the tag that it adds to a name without one.
    let tagged = |model: &ModelName| ModelName::from(format!("{model}:latest"));
    let is_denied = |model: &&ModelName| page.denies(model) && page.denies(&tagged(model));
    models.iter().filter(is_denied).cloned().collect()
}

/// Returns true if the page's one model is its own owner, as in Text Generation Inference, which
/// ignores the names of models.
fn names_itself(page: &ModelsPage) -> bool {
    let mut ids = page.ids();
    let first = ids.next().and_then(|id| Some((id, page.get(id)?)));
    let is_own = first.is_some_and(|(id, model)| model.owned_by.as_deref() == Some(id.as_str()));
    is_own && ids.next().is_none()
}

fn tell(name: &ReplicaName, page: &ModelsPage, denied: &BTreeSet<ModelName>) {
    let serves = shown(&mut page.ids());
    let not = shown(&mut denied.iter());
    tracing::warn!(
        replica = %name,
        "{name} serves {serves}, not {not}: correct its `models`, and let [aliases] lead from other names"
    );
}

/// Returns the first of these models, for a message.
fn shown(names: &mut dyn Iterator<Item = &ModelName>) -> String {
    // One more than is shown, to know if there are more.
    let shown: Vec<&str> = names.take(SHOWN_MAX + 1).map(ModelName::as_str).collect();
    let (shown, more) = match shown.get(..SHOWN_MAX) {
        Some(first) if shown.len() > SHOWN_MAX => (first, ", ..."),
        _ => (&shown[..], ""),
    };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use spillway_types::ServedModel;

    use super::*;

    fn page(models: &[(&str, &str)]) -> ModelsPage {
        ModelsPage::new(models.iter().map(|(id, owner)| {
            let owned_by = Some((*owner).to_owned());
            ((*id).into(), ServedModel { owned_by, ..ServedModel::default() })
        }))
    }

    fn denied(models: &[(&str, &str)]) -> Vec<String> {
        let denied = denied_by(&page(models), &["llama".into()]);
        denied.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_model_that_a_page_does_not_list_is_denied() {
        assert_eq!(denied(&[("llama-3.1-8b", "vllm")]), ["llama"]);
        assert_eq!(denied(&[("llama-3.1-8b", "vllm"), ("llama", "vllm")]), [""; 0]);
        assert_eq!(denied(&[]), [""; 0]);
        assert_eq!(denied(&[("llama:latest", "library")]), [""; 0]);
        assert_eq!(denied(&[("llama:7b", "library")]), ["llama"]);
    }

    #[test]
    fn servers_that_go_by_no_names_deny_nothing() {
        assert_eq!(denied(&[("/models/x.gguf", "llamacpp")]), [""; 0]);
        assert_eq!(denied(&[("meta/llama-3", "sglang")]), [""; 0]);
        assert_eq!(denied(&[("meta/llama-3", "meta/llama-3")]), [""; 0]);
    }
}
