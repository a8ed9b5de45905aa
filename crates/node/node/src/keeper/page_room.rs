//! Memory of the pages of models of all replicas together, and of the records made of their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_types::{ModelName, ModelsPage, ServedModel};

/// Room of all pages together, in bytes.
const ROOM_BYTES: usize = 8 << 20;
/// Bytes that each page may have whatever the others have: some models of its own, or many known ones.
const OWN_BYTES: usize = 16 << 10;
/// Bytes counted for a name that no other page has: where the config leaves the models open, it is
/// kept in views, verdicts and metrics.
const NAME_BYTES: usize = 3 << 10;

/// Room that the pages of replicas share. Equal pages count once, as those of replicas that serve the
/// same. A page may have half of what the others leave, so that replicas with endless lists leave room
/// for others, whichever comes first.
#[derive(Debug, Default)]
pub(super) struct PageRoom {
    /// Pages, each with the number of replicas that have it.
    pages: Vec<(Arc<ModelsPage>, usize)>,
    /// Bytes of all pages.
    bytes: usize,
    /// Names of all pages, each with the number of pages that have it.
    named: BTreeMap<ModelName, usize>,
}

impl PageRoom {
    /// Takes a page in, in place of an earlier one of its replica. Returns as much of the page as
    /// there is room for. A page with models left out is incomplete, so it denies no model.
    pub(super) fn replace(
        &mut self,
        before: Option<&ModelsPage>,
        page: Arc<ModelsPage>,
    ) -> Arc<ModelsPage> {
        if let Some(before) = before {
            self.remove(before);
        }
        let room = OWN_BYTES.max(ROOM_BYTES.saturating_sub(self.taken()) / 2);
        let is_known = self.find(&page).is_some();
        let whole: usize = page.iter().map(|(id, model)| self.cost(id, model)).sum();
        let kept = if is_known || whole <= room {
            page
        } else {
            let mut taken = 0;
            Arc::new(page.first(|id, model| {
                taken += self.cost(id, model);
                taken <= room
            }))
        };
        if let Some(at) = self.find(&kept) {
            self.pages[at].1 += 1;
            return Arc::clone(&self.pages[at].0);
        }
        self.bytes += kept.bytes();
        for id in kept.ids() {
            *self.named.entry(id.clone()).or_default() += 1;
        }
        self.pages.push((Arc::clone(&kept), 1));
        kept
    }

    /// Gives the room of a replica's page back.
    pub(super) fn remove(&mut self, page: &ModelsPage) {
        let Some(at) = self.find(page) else { return };
        self.pages[at].1 -= 1;
        if self.pages[at].1 > 0 {
            return;
        }
        self.pages.swap_remove(at);
        self.bytes -= page.bytes();
        for id in page.ids() {
            if let Some(count) = self.named.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    self.named.remove(id);
                }
            }
        }
    }

    fn find(&self, page: &ModelsPage) -> Option<usize> {
        self.pages.iter().position(|(known, _)| **known == *page)
    }

    fn taken(&self) -> usize {
        self.bytes + self.named.len() * NAME_BYTES
    }

    fn cost(&self, id: &ModelName, model: &ServedModel) -> usize {
        let name = if self.named.contains_key(id) { 0 } else { NAME_BYTES };
        model.bytes(id) + name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(ids: impl Iterator<Item = String>) -> Arc<ModelsPage> {
        Arc::new(ModelsPage::new(ids.map(|id| (id.into(), ServedModel::default()))))
    }

    #[test]
    fn replicas_with_endless_lists_leave_room_for_a_short_one() {
        let mut room = PageRoom::default();
        let endless: Vec<_> =
            (0..200).map(|at| page((0..1_024).map(|id| format!("m-{at}-{id}")))).collect();
        let mut kept: Vec<Option<Arc<ModelsPage>>> = vec![None; endless.len()];
        // Each is read again and again.
        for _ in 0..8 {
            for (kept, page) in kept.iter_mut().zip(&endless) {
                *kept = Some(room.replace(kept.as_deref(), Arc::clone(page)));
            }
        }
        let most = ROOM_BYTES + endless.len() * OWN_BYTES;
        assert!(room.taken() <= most, "{}", room.taken());
        let short = page(["one", "two"].into_iter().map(str::to_owned));
        assert_eq!(room.replace(None, Arc::clone(&short)), short);
        let first = kept[0].take().unwrap();
        assert!(first.ids().len() < 1_024 && !first.denies(&"other".into()), "it is cut");
        room.remove(&first);
        room.remove(&short);
        kept.iter().flatten().for_each(|page| room.remove(page));
        assert_eq!(room.taken(), 0);
    }

    #[test]
    fn pages_that_many_replicas_share_cost_once() {
        let mut room = PageRoom::default();
        let adapters = page((0..50).map(|id| format!("adapter-{id}")));
        for _ in 0..10_000 {
            assert_eq!(room.replace(None, Arc::clone(&adapters)), adapters, "it is whole");
        }
        for _ in 0..10_000 {
            room.remove(&adapters);
        }
        assert_eq!(room.taken(), 0);
    }
}
