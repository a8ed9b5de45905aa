//! Lookups of unknown models: which replicas are still to answer.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use spillway_types::{Admission, ReplicaName};

use super::Keeper;

/// Time after which a lookup ends without the replicas that have not answered.
const PATIENCE: Duration = Duration::from_secs(1);

/// Lookup under way. The next one joins it.
#[derive(Debug)]
pub(super) struct ModelLookup {
    number: u64,
    since: Instant,
    /// Replicas that have not answered.
    asked: BTreeSet<ReplicaName>,
}

impl Keeper {
    /// Has the replicas asked for their models whose own lists count.
    pub(super) fn look_up_models(&mut self, number: u64) {
        let listing = self.folded.replicas.iter().filter(|config| config.needs_models());
        let names = listing.map(|config| &config.spec.name);
        // A replica that is down is asked as soon as it is back.
        let up = names.filter(|name| self.fleet.standing(name).admission != Admission::Down);
        let asked = up.filter(|name| self.identities.read_models_again(name)).cloned().collect();
        self.lookup = Some(ModelLookup { number, since: Instant::now(), asked });
        self.end_lookup();
    }

    /// Notes that a replica was asked for its models, and takes in its answer at once: requests wait
    /// for it.
    pub(super) async fn note_models_read(&mut self, replica: &ReplicaName) {
        let Some(lookup) = &mut self.lookup else { return };
        if !lookup.asked.remove(replica) {
            return;
        }
        if std::mem::take(&mut self.has_news) {
            self.take_news().await;
        }
        self.end_lookup();
    }

    /// Ends the lookup if all replicas have answered, or if that takes too long.
    pub(super) fn end_lookup(&mut self) {
        let is_over =
            |lookup: &mut ModelLookup| lookup.asked.is_empty() || lookup.since.elapsed() > PATIENCE;
        if let Some(lookup) = self.lookup.take_if(is_over) {
            self.routing.model_lookups.finish(lookup.number);
        }
    }
}
