//! Record of a finished request: the one table of its facts. A line of the access log, the answer
//! of the admin API, the page about both and the attributes of spans are made of this table.

mod facts;

use std::sync::Arc;

pub use self::facts::{AttributeValue, Decimal, MeasuredMs, Predicted, RecordField};
use self::facts::{Face, FactValue, RequestFact, attributes, fields_of, request_facts};
use crate::{Compared, FailedTry, LeftOutRegion, Outcome, Prediction, TriedTarget};

/// A finished request, and the node that it ended on.
#[derive(Clone, Copy, Debug)]
pub struct EndedRequest<'a> {
    /// Number of the request on the node.
    pub number: u64,
    /// Time at which the request ended, in milliseconds since 1970.
    pub ended_ms: u64,
    /// Name of the node.
    pub node: &'a Arc<str>,
    /// Region of the node.
    pub region: &'a Arc<str>,
    /// Outcome of the request.
    pub outcome: &'a Outcome,
}

request_facts! {
    /// A request that ended: what the access log has as a line.
    pub struct RequestEntry(ended: EndedRequest<'_>) {
        /// Number of the request on this node, starting at 1 when the node starts.
        number: u64 = ended.number;
        /// Time at which the request ended, in milliseconds since 1970.
        ended_ms: u64 = ended.ended_ms;
        /// Id of the request; the client's own if it sent one.
        id: Option<Arc<str>> = shared(ended.outcome.id.clone()) => Span("spillway.request.id");
        /// Id of the request's trace, 32 hexadecimal digits.
        trace_id: Option<Arc<str>> =
            ended.outcome.trace.map(|ids| format!("{:032x}", ids.trace).into());
        /// Node that writes the line.
        node: Arc<str> = Arc::clone(ended.node) => Span("spillway.node");
        /// Id of the client's key; null if no key was required.
        key: Option<Arc<str>> = shared(ended.outcome.key.clone()) => Span("spillway.key.id");
        /// Tenant of the client.
        tenant: Option<Arc<str>> = shared(ended.outcome.tenant.as_ref()) => Span("spillway.tenant");
        /// Route that matched.
        route: Option<Arc<str>> = shared(ended.outcome.route.as_ref()) => Span("spillway.route");
        /// Model that served, after aliases are resolved.
        model: Option<Arc<str>> = shared(ended.outcome.model.as_ref())
            => Span("gen_ai.request.model");
        /// Model that could not serve, if a fallback served instead.
        fallback_for: Option<Arc<str>> = shared(ended.outcome.fallback_for.as_ref())
            => Span("spillway.fallback_for");
        /// Split and its arm, as `split/arm`.
        arm: Option<Arc<str>> = ended.arm() => Span("spillway.split.arm");
        /// Reason for the choice of the arm, e.g. `hashed`.
        #[serde(default)]
        arm_reason: Option<Arc<str>> = ended.outcome.arm_reason.map(Into::into)
            => Span("spillway.split.reason"), Values("arm");
        /// Region that served, or was tried last: another region if the request was forwarded; null
        /// if none was tried.
        region: Option<Arc<str>> = ended.region_tried();
        /// Replica that was tried last; null if none was tried, or if it is in another region.
        replica: Option<Arc<str>> = ended.unless_forwarded(shared(ended.outcome.replica.as_ref()));
        /// Earlier attempts that failed, in order: at replicas and at other regions.
        #[serde(default)]
        tries: Vec<TryEntry> =
            ended.outcome.tries.iter().map(|it| (it, ended.region).into()).collect();
        /// Other regions that were excluded, if the request failed or regions were compared.
        #[serde(default)]
        left_out: Vec<LeftOutEntry> = ended.outcome.left_out.iter().map(Into::into).collect();
        /// Regions and countries where residency rules allow the request to be served, in words;
        /// null for everywhere.
        #[serde(default)]
        residency: Option<Arc<str>> = ended.residency();
        /// Reason for the choice of the replica, e.g. `soonest`.
        reason: Option<Arc<str>> = ended.unless_forwarded(ended.outcome.reason.map(Into::into))
            => Attempt("spillway.reason"), Values("replica");
        /// Reason for which the request was shed, e.g. `queue_full`.
        shed: Option<Arc<str>> = ended.outcome.shed.map(|shed| shed.reason.into())
            => Span("spillway.shed.reason"), Values("shed");
        /// Priority class, if the request was shed.
        priority: Option<u8> = ended.outcome.shed.map(|shed| shed.priority)
            => Span("spillway.shed.priority");
        /// True if another node forwarded the request to this one.
        is_guest: bool = ended.outcome.is_guest => Span("spillway.is_guest");
        /// Status sent to the client; 499 if the client disconnected first.
        status: u16 = ended.outcome.status => Span("http.response.status_code");
        /// Status of a gRPC call.
        grpc_status: Option<u8> = ended.outcome.grpc_status => Span("rpc.grpc.status_code");
        /// Code of the failure, e.g. `replica_connect`; null for successful requests.
        #[serde(default)]
        code: Option<Arc<str>> = ended.outcome.code.map(Into::into);
        /// Message of the gateway's own error, or the code or type of the replica's error.
        #[serde(default)]
        detail: Option<Arc<str>> = ended.outcome.detail.clone().map(Into::into);
        /// How the request ended, e.g. `complete`, `cut`.
        end: Arc<str> = ended.outcome.end.name().into() => Span("spillway.end"), Values("end");
        /// Time from the request's head to its end, in milliseconds.
        duration_ms: MeasuredMs = ended.outcome.duration.into();
        /// Time from the request's head to the first token, in milliseconds; null except for
        /// successful streams.
        first_token_ms: Option<MeasuredMs> = ended.outcome.first_token().map(Into::into)
            => Span("spillway.first_token_ms");
        /// True if the reply was a stream of events.
        is_stream: bool = ended.outcome.is_stream;
        /// Time that the gateway itself spent before it sent the request to a replica, in
        /// milliseconds.
        overhead_ms: MeasuredMs = ended.outcome.overhead.into() => Span("spillway.overhead_ms");
        /// Number of retries.
        retries: u32 =
            u32::from(ended.outcome.retries_unsent) + u32::from(ended.outcome.retries_reset)
            => SpanIfAny("spillway.retries");
        /// Result of a second attempt beside the first, e.g. `won`.
        hedge: Option<Arc<str>> = ended.outcome.hedge.map(|hedge| hedge.name().into())
            => Span("spillway.hedge"), Values("hedge");
        /// Prompt tokens.
        prompt_tokens: u64 = ended.outcome.tokens.prompt => SpanIfAny("gen_ai.usage.input_tokens");
        /// Prompt tokens found in the replica's cache.
        cached_tokens: u64 = ended.outcome.tokens.cached
            => SpanIfAny("gen_ai.usage.cache_read.input_tokens");
        /// Generated tokens.
        completion_tokens: u64 = ended.outcome.tokens.completion
            => SpanIfAny("gen_ai.usage.output_tokens");
        /// True if prompt tokens or generated tokens are estimated, because the reply reported no
        /// plausible usage.
        tokens_estimated: bool = ended.outcome.estimate.is_some()
            => Span("spillway.tokens_estimated");
        /// Prediction for the chosen replica; null if the policy predicts nothing.
        expected: Option<Expected> = ended.outcome.predicted.map(Into::into);
        /// Last comparison of regions; null if none was needed.
        compared: Option<ComparedRegions> = ended.outcome.compared.as_deref().map(Into::into);
    }
}

request_facts! {
    /// A place that was asked in vain.
    pub struct TryEntry(tried: (&FailedTry, &Arc<str>)) {
        /// Region of the attempt.
        region: Arc<str> = match &tried.0.target {
            TriedTarget::Replica(_) => Arc::clone(tried.1),
            TriedTarget::Region(region) => region.into(),
        };
        /// Replica; null if another region chose it.
        replica: Option<Arc<str>> = match &tried.0.target {
            TriedTarget::Replica(replica) => shared(Some(replica)),
            TriedTarget::Region(_) => None,
        };
        /// Code of the failure, e.g. `replica_reset`, `region_lost`.
        code: Arc<str> = tried.0.code.into();
        /// Status of the reply; null without one.
        status: Option<u16> = tried.0.status;
        /// Time from the request's head to the failure, in milliseconds.
        after_ms: MeasuredMs = tried.0.after.into();
    }
}

request_facts! {
    /// Another region that was not considered.
    pub struct LeftOutEntry(left_out: &LeftOutRegion) {
        /// Name of the region.
        region: Arc<str> = (&left_out.region).into();
        /// Reason for leaving it out, e.g. `no_model`.
        reason: Arc<str> = left_out.why.name().into() => Values("left_out");
    }
}

request_facts! {
    /// Expectation of a replica, at the time of the decision.
    pub struct Expected(expected: Prediction) {
        /// Time to the first token, in milliseconds.
        first_token_ms: Predicted = expected.first_token_ms.into()
            => Attempt("spillway.expected.first_token_ms");
        /// Part of that: time in queues.
        wait_ms: Predicted = expected.wait_ms.into() => Attempt("spillway.expected.wait_ms");
        /// Part of that: prefill of the uncached tokens.
        prefill_ms: Predicted = expected.prefill_ms.into()
            => Attempt("spillway.expected.prefill_ms");
        /// Tokens of the prompt.
        prompt_tokens: u32 = expected.prompt_tokens => Attempt("spillway.expected.prompt_tokens");
        /// Prompt tokens expected in the cache.
        cached_tokens: u32 = expected.cached_tokens => Attempt("spillway.expected.cached_tokens");
        /// Requests running at the replica.
        running: Predicted = expected.running.into();
        /// Requests waiting at the replica.
        queued: Predicted = expected.queued.into();
    }
}

request_facts! {
    /// Comparison of this region with others.
    pub struct ComparedRegions(compared: &Compared) {
        /// Cost in this region, in milliseconds; null if no replica here could serve.
        here_ms: Option<Predicted> = compared.here_ms.map(Into::into)
            => Span("spillway.compared.here_ms");
        /// The cheapest other region that could take the request; null if none could.
        best: Option<Arc<str>> = shared(compared.best.as_ref().map(|(region, _)| region))
            => Span("spillway.compared.best_region");
        /// Cost in that region, in milliseconds.
        best_ms: Option<Predicted> = compared.best.as_ref().map(|(_, cost_ms)| (*cost_ms).into())
            => Span("spillway.compared.best_ms");
        /// Reason for the decision, e.g. `better`, `none_better`.
        reason: Arc<str> = compared.reason.into()
            => Span("spillway.compared.reason"), Values("region");
    }
}

impl RequestEntry {
    /// Returns the fields of an entry and of the objects in it, in the order in which lines of the
    /// access log have them.
    #[must_use]
    pub fn fields() -> Vec<RecordField> {
        fields_of(&Self::default(), "")
    }

    /// Returns the attributes of the request's span.
    #[must_use]
    pub fn span_attributes(&self) -> Vec<(&'static str, AttributeValue)> {
        attributes(self, |face, value| match face {
            Face::Span(name) => Some(name),
            Face::SpanIfAny(name) => (*value != AttributeValue::Integer(0)).then_some(name),
            Face::Attempt(_) | Face::Values(_) => None,
        })
    }

    /// Returns the attributes of the span of an attempt at a replica of this region.
    #[must_use]
    pub fn attempt_attributes(&self) -> Vec<(&'static str, AttributeValue)> {
        attributes(self, |face, _| match face {
            Face::Attempt(name) => Some(name),
            Face::Span(_) | Face::SpanIfAny(_) | Face::Values(_) => None,
        })
    }
}

impl EndedRequest<'_> {
    fn arm(&self) -> Option<Arc<str>> {
        let arm = self.outcome.arm.as_ref()?;
        Some(format!("{}/{}", arm.split, arm.arm).into())
    }

    fn region_tried(&self) -> Option<Arc<str>> {
        let own = || self.outcome.replica.is_some().then(|| Arc::clone(self.region));
        shared(self.outcome.region.as_ref()).or_else(own)
    }

    /// Drops a fact about the attempt here if the request was forwarded after it.
    fn unless_forwarded(&self, fact: Option<Arc<str>>) -> Option<Arc<str>> {
        fact.filter(|_| self.outcome.region.is_none())
    }

    fn residency(&self) -> Option<Arc<str>> {
        let residency = &self.outcome.residency;
        (!residency.is_anywhere()).then(|| residency.to_string().into())
    }
}

fn shared(text: Option<impl Into<Arc<str>>>) -> Option<Arc<str>> {
    text.map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_a_meaning_and_the_place_that_a_line_gives_it() {
        let fields = RequestEntry::fields();
        assert!(fields.iter().all(|field| !field.meaning.is_empty()), "{fields:?}");
        let names: Vec<&str> = fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names[..3], ["number", "ended_ms", "id"]);
        let place = |name: &str| names.iter().position(|known| *known == name);
        assert!(place("tries") < place("tries[].code") && place("tries[].code") < place("end"));
        let end = fields.iter().find(|field| field.name == "end").expect("a field");
        assert_eq!(end.meaning, "How the request ended, e.g. `complete`, `cut`");
        assert_eq!(end.values, Some("end"));
    }

    #[test]
    fn the_attributes_of_a_span_are_the_facts_that_are_known() {
        let expected = Expected { cached_tokens: 0, wait_ms: 1.25.into(), ..Expected::default() };
        let entry = RequestEntry {
            status: 200,
            grpc_status: Some(0),
            is_guest: true,
            expected: Some(expected),
            ..RequestEntry::default()
        };
        let names = |attributes: Vec<(&'static str, AttributeValue)>| {
            attributes.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(
            names(entry.span_attributes()),
            [
                "spillway.node",
                "spillway.is_guest",
                "http.response.status_code",
                "rpc.grpc.status_code",
                "spillway.end",
                "spillway.overhead_ms",
            ]
        );
        let attempt = entry.attempt_attributes();
        assert_eq!(attempt[1], ("spillway.expected.wait_ms", AttributeValue::Number(1.25)));
        assert_eq!(attempt.len(), 5, "{attempt:?}");
    }
}
