//! Ledger of the requests that a node has at its replicas.

use std::collections::BTreeMap;

use super::rule::News;

/// Prompts of the requests that are at replicas, from sending to the end of the reply.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    requests: BTreeMap<usize, Entry>,
}

/// Request at a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) replica: usize,
    /// Blocks of the prompt.
    pub(super) chain: Vec<u64>,
    has_begun: bool,
}

impl Ledger {
    /// Notes news of a request. Returns the work that was added to a replica and the work that was
    /// removed from one.
    pub(super) fn note(&mut self, news: &News<'_>) -> (Option<Entry>, Option<Entry>) {
        match news {
            News::Sent(sent) => {
                let chain = sent.chain.to_vec();
                let came = Entry { replica: sent.replica, chain, has_begun: false };
                // Another replica may have turned the request away before.
                let went = self.requests.insert(sent.request, came.clone());
                (Some(came), went)
            }
            News::Replied(replied) => {
                if let Some(entry) = self.requests.get_mut(&replied.request) {
                    entry.has_begun = true;
                }
                (None, None)
            }
            News::Ended(ended) => (None, self.requests.remove(&ended.request)),
            News::Forwarded(_) => (None, None),
            // Nothing is left to decide once a reply begins: such a request stays until it ends.
            News::Left(request) => {
                let is_gone = self.requests.get(request).is_some_and(|entry| !entry.has_begun);
                (None, if is_gone { self.requests.remove(request) } else { None })
            }
        }
    }

    /// Returns the number of requests at all replicas.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }
}
