//! What replicas say of the models that they serve, and what of the config that speaks against.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spillway_health::MemberReport;
use spillway_proxy::{ModelCards, Replica};
use spillway_types::{ModelName, ModelsPage, ReplicaName};

use super::ReplicaConfig;

/// Software that serves its one model by whatever name is asked for, as its pages name it.
const NAMELESS: [&str; 2] = ["llamacpp", "sglang"];
/// Models of a page that a message lists.
const SHOWN_MAX: usize = 5;

/// The newest pages of all replicas, and what follows from them.
#[derive(Debug, Default)]
pub(super) struct Pages {
    read: BTreeMap<ReplicaName, Read>,
    /// Models of the config that replicas say they do not have.
    denied: BTreeMap<ReplicaName, BTreeSet<ModelName>>,
    cards: Arc<ModelCards>,
}

/// The page of one replica.
#[derive(Debug)]
struct Read {
    replica: Arc<Replica>,
    page: Arc<ModelsPage>,
}

impl Pages {
    /// Takes in what a reading of a replica's page showed. Returns whether that was news.
    pub(super) fn note(
        &mut self,
        name: &ReplicaName,
        replica: &Arc<Replica>,
        page: Option<Arc<ModelsPage>>,
    ) -> bool {
        let known = self.read.get(name).map(|read| &read.page);
        if known == page.as_ref() {
            return false;
        }
        match page {
            Some(page) => {
                let replica = Arc::clone(replica);
                self.read.insert(name.clone(), Read { replica, page });
            }
            None => drop(self.read.remove(name)),
        }
        true
    }

    /// Goes by these replicas from now on. What one said that is no more, or has become another, is
    /// forgotten. Tells of models that are newly denied.
    pub(super) fn reconcile(
        &mut self,
        configs: &[ReplicaConfig],
        replicas: &BTreeMap<ReplicaName, Arc<Replica>>,
    ) {
        self.read.retain(|name, read| {
            replicas.get(name).is_some_and(|replica| Arc::ptr_eq(replica, &read.replica))
        });
        let pages = configs.iter().filter_map(|config| {
            let read = self.read.get(&config.spec.name)?;
            Some((&config.spec, &read.page))
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
        let said = pages.iter().flat_map(|(spec, page)| {
            spec.models.iter().filter_map(|model| Some((model, page.get(model)?)))
        });
        self.cards = Arc::new(ModelCards::new(said));
        self.denied = denied;
    }

    /// Models of the config that replicas say they do not have, by replica.
    pub(super) fn denied(&self) -> &BTreeMap<ReplicaName, BTreeSet<ModelName>> {
        &self.denied
    }

    /// What clients are told of models.
    pub(super) fn cards(&self) -> Arc<ModelCards> {
        Arc::clone(&self.cards)
    }

    /// Adds to a report what the replica says of its models.
    pub(super) fn complete(&self, member: &mut MemberReport) {
        let page = self.read.get(&member.name).map(|read| &read.page);
        member.models_told = page.map(|page| page.ids().cloned().collect());
        let denied = self.denied.get(&member.name);
        member.models_denied = denied.into_iter().flatten().cloned().collect();
    }
}

/// The models that a replica should serve, and says it does not have.
fn denied_by(page: &ModelsPage, models: &[ModelName]) -> BTreeSet<ModelName> {
    if page.owner().is_some_and(|owner| NAMELESS.contains(&owner)) || names_itself(page) {
        return BTreeSet::new();
    }
    models.iter().filter(|model| page.denies(model)).cloned().collect()
}

/// Whether its one model is its own owner, as Text Generation Inference has it, which goes by no names.
fn names_itself(page: &ModelsPage) -> bool {
    let mut ids = page.ids();
    let first = ids.next().and_then(|id| Some((id, page.get(id)?)));
    let is_own = first.is_some_and(|(id, model)| model.owned_by.as_deref() == Some(id.as_str()));
    is_own && ids.next().is_none()
}

fn tell(name: &ReplicaName, page: &ModelsPage, denied: Option<&BTreeSet<ModelName>>) {
    let listed = |names: &mut dyn Iterator<Item = &ModelName>| {
        let shown: Vec<&str> = names.take(SHOWN_MAX + 1).map(ModelName::as_str).collect();
        let (shown, more) = match shown.get(..SHOWN_MAX) {
            Some(first) if shown.len() > SHOWN_MAX => (first, ", ..."),
            _ => (&shown[..], ""),
        };
        format!("{}{more}", shown.join(", "))
    };
    let serves = listed(&mut page.ids());
    let not = listed(&mut denied.into_iter().flatten());
    tracing::warn!(
        replica = %name,
        "{name} serves {serves}, not {not}: correct its `models`, and let [aliases] lead from other names"
    );
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
