//! Software and models that replicas report of themselves, and the contradictions to the config.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spillway_config::ReplicaConfig;
use spillway_health::MemberReport;
use spillway_replicas::Engine;
use spillway_types::{ModelName, ModelsPage, ReplicaName};
use spillway_upstream::model_cards::ModelCards;
use spillway_upstream::replica::Replica;

/// Software that serves its one model under any name, by the owner in its pages.
const NAMELESS: [&str; 2] = ["llamacpp", "sglang"];
/// Maximum number of a page's models that a log line lists.
const SHOWN_MAX: usize = 5;

/// Newest pages of all replicas, and what follows from them.
#[derive(Debug, Default)]
pub(super) struct Pages {
    reports: BTreeMap<ReplicaName, PageReport>,
    /// Models of the config that replicas say they do not have.
    denied: BTreeMap<ReplicaName, BTreeSet<ModelName>>,
    cards: Arc<ModelCards>,
}

/// Newest report of one replica about itself.
#[derive(Debug)]
struct PageReport {
    replica: Arc<Replica>,
    /// Software of the server; `None` while its pages do not tell.
    engine: Option<Engine>,
    models: Models,
}

/// Report of a replica on its models.
#[derive(Clone, Debug, Default, PartialEq)]
enum Models {
    /// The replica was not reached yet.
    #[default]
    Unread,
    /// The replica has no page of models.
    Unlisted,
    /// The page of models.
    Page(Arc<ModelsPage>),
}

impl PageReport {
    fn page(&self) -> Option<&Arc<ModelsPage>> {
        match &self.models {
            Models::Page(page) => Some(page),
            Models::Unread | Models::Unlisted => None,
        }
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
        let report = self.report(name, replica);
        let models = page.map_or(Models::Unlisted, Models::Page);
        if report.models == models {
            return false;
        }
        report.models = models;
        true
    }

    /// Logs the models that a replica lists and the config does not name.
    pub(super) fn tell_listed(&self, name: &ReplicaName) {
        match self.reports.get(name).map(|report| &report.models) {
            Some(Models::Page(page)) => {
                let models = shown(&mut page.ids());
                tracing::info!(replica = %name, models, "its models were discovered");
            }
            Some(Models::Unlisted) => {
                tracing::warn!(replica = %name, "it lists no models: name them in its `models`");
            }
            Some(Models::Unread) | None => {}
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
        })
    }

    /// Fills in what the config leaves open and the replica has reported.
    pub(super) fn fill(&self, config: ReplicaConfig) -> ReplicaConfig {
        let report = self.reports.get(&config.spec.name);
        let engine = report.and_then(|report| report.engine);
        let listed = report.and_then(PageReport::page).into_iter().flat_map(|page| page.ids());
        // Names of models stand in logs and metrics.
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
            specs.get(name).is_some_and(|spec| report.replica.with_spec(spec).is_some())
        });
    }

    /// Takes over the replicas, and logs models that are newly denied.
    pub(super) fn reconcile(&mut self, configs: &[ReplicaConfig]) {
        let pages = configs.iter().filter_map(|config| {
            let page = self.reports.get(&config.spec.name)?.page()?;
            Some((&config.spec, page))
        });
        let pages: Vec<_> = pages.collect();
        let denied = pages.iter().filter_map(|(spec, page)| {
            let denied = denied_by(page, &spec.models);
            (!denied.is_empty()).then(|| (spec.name.clone(), denied))
        });
        let denied: BTreeMap<ReplicaName, BTreeSet<ModelName>> = denied.collect();
        for (spec, page) in &pages {
            let now = denied.get(&spec.name);
            if now.is_some() && now != self.denied.get(&spec.name) {
                tell(&spec.name, page, now);
            }
        }
        let reports = pages.iter().flat_map(|(spec, page)| {
            spec.models.iter().filter_map(|model| Some((model, page.get(model)?)))
        });
        self.cards = Arc::new(ModelCards::new(reports));
        self.denied = denied;
    }

    /// Returns the models of the config that replicas say they do not have, by replica.
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
    }
}

/// Returns the models that a replica should serve, and says it does not have.
fn denied_by(page: &ModelsPage, models: &[ModelName]) -> BTreeSet<ModelName> {
    if page.owner().is_some_and(|owner| NAMELESS.contains(&owner)) || names_itself(page) {
        return BTreeSet::new();
    }
    models.iter().filter(|model| page.denies(model)).cloned().collect()
}

/// Returns true if the page's one model is its own owner, as in Text Generation Inference, which
/// ignores the names of models.
fn names_itself(page: &ModelsPage) -> bool {
    let mut ids = page.ids();
    let first = ids.next().and_then(|id| Some((id, page.get(id)?)));
    let is_own = first.is_some_and(|(id, model)| model.owned_by.as_deref() == Some(id.as_str()));
    is_own && ids.next().is_none()
}

fn tell(name: &ReplicaName, page: &ModelsPage, denied: Option<&BTreeSet<ModelName>>) {
    let serves = shown(&mut page.ids());
    let not = shown(&mut denied.into_iter().flatten());
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
    }

    #[test]
    fn servers_that_go_by_no_names_deny_nothing() {
        assert_eq!(denied(&[("/models/x.gguf", "llamacpp")]), [""; 0]);
        assert_eq!(denied(&[("meta/llama-3", "sglang")]), [""; 0]);
        assert_eq!(denied(&[("meta/llama-3", "meta/llama-3")]), [""; 0]);
    }
}
