//! News of requests: reports of nodes to their own routers and to those of their neighbours.

use super::request::Station;
use super::{World, WorldEvent};
use crate::router::{Forwarded, Sent, Stage, Written};
use crate::text::router_chain;

impl World {
    /// Notes that a node sent a request to a replica, and lets its neighbours learn of it.
    pub(super) fn spread_sent(&mut self, request: usize, node: usize, replica: usize) {
        self.report_sent(request, (node, replica), true);
        self.spread(node, |other| WorldEvent::Shared { request, node: other, replica });
    }

    /// Notes that a replica of a node has the whole of a request cached, and lets the node's
    /// neighbours learn of it.
    pub(super) fn spread_written(&mut self, request: usize, node: usize, replica: usize) {
        self.report_written(request, (node, replica), true);
        self.spread(node, |other| WorldEvent::Written { request, node: other, replica });
    }

    /// Notes at the node that forwarded a request what became of it, and lets the node's neighbours
    /// learn of it.
    pub(super) fn spread_forwarded(&mut self, request: usize, region: usize, station: Station) {
        let entry = self.requests[request].entry;
        self.tell_forwarded((request, entry), region, station);
        self.spread(entry, |other| WorldEvent::Forwarded { request, node: other, region, station });
    }

    /// Sends news to the neighbours of a node.
    fn spread(&mut self, node: usize, event: impl Fn(usize) -> WorldEvent) {
        let Some(heard) = self.shared_at(self.now) else { return };
        for other in self.groups[self.nodes[node].group].nodes.clone() {
            if other != node && !self.is_lost() {
                self.agenda.put(heard, event(other));
            }
        }
    }

    pub(super) fn report_sent(
        &mut self,
        request: usize,
        (node, replica): (usize, usize),
        is_own: bool,
    ) {
        let chain = self.requests[request].chain().as_slice();
        let sent = Sent { request, replica, chain, is_own, now_ms: self.now.ms() };
        self.nodes[node].router.sent(&sent);
    }

    pub(super) fn report_written(
        &mut self,
        request: usize,
        (node, replica): (usize, usize),
        is_own: bool,
    ) {
        let chain = router_chain(&self.requests[request].engine_chain);
        let prompt_blocks = self.requests[request].chain().as_slice().len();
        let asked = &self.requests[request];
        let written = Written {
            replica,
            chain: &chain,
            prompt_blocks,
            prompt_tokens: asked.prompt_tokens,
            cached_tokens: asked.cached_tokens,
            reply_tokens: asked.reply_tokens,
            now_ms: self.now.ms(),
            is_own,
        };
        self.nodes[node].router.written(&written);
    }

    pub(super) fn tell_forwarded(
        &mut self,
        (request, node): (usize, usize),
        region: usize,
        station: Station,
    ) {
        let asked = &self.requests[request];
        let whole;
        let stage = match station {
            Station::Sent => Stage::Sent,
            Station::Replied => Stage::Replied { cached_tokens: asked.cached_tokens },
            Station::Ended => {
                whole = router_chain(&asked.engine_chain);
                Stage::Ended { whole: &whole }
            }
            Station::Refused => Stage::Refused,
        };
        let forwarded = Forwarded {
            request,
            region,
            chain: asked.chain().as_slice(),
            now_ms: self.now.ms(),
            is_own: node == asked.entry,
            stage,
        };
        self.nodes[node].router.forwarded(&forwarded);
    }
}
