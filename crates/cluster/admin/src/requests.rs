//! Interface to the node's memory of the requests that ended last.

use std::borrow::Cow;
use std::fmt::Debug;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Memory of the requests that ended last on this node. Needs no cluster.
pub trait Requests: Debug + Send + Sync {
    /// Returns requests that pass the filter, newest first, at most `limit`.
    fn recent(&self, filter: &RequestFilter, limit: usize) -> Vec<RequestEntry<'static>>;
}

/// Choice of requests. A field that is `None` is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Only requests with a greater number.
    pub after: Option<u64>,
    /// Only requests that failed: an error, a gRPC status other than 0, or a reply that broke off.
    pub is_failed: bool,
    /// Fields and their required values; for `status` a class such as `5xx` may be given.
    pub fields: Vec<(FilterField, String)>,
}

/// Field of a request that a filter can look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterField {
    /// Id of the request; a client may use one several times.
    Id,
    /// Tenant of the client.
    Tenant,
    /// Id of the client's key.
    Key,
    /// Model that served.
    Model,
    /// Route that matched.
    Route,
    /// Replica that was asked last.
    Replica,
    /// Region that served.
    Region,
    /// Reason of the decision, or of the refusal.
    Reason,
    /// Status that the client was sent.
    Status,
    /// Code of the failure, or of one of its tries.
    Code,
}

impl FilterField {
    /// All fields.
    pub const ALL: [Self; 10] = [
        Self::Id,
        Self::Tenant,
        Self::Key,
        Self::Model,
        Self::Route,
        Self::Replica,
        Self::Region,
        Self::Reason,
        Self::Status,
        Self::Code,
    ];

    /// Returns the name of the query parameter.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Tenant => "tenant",
            Self::Key => "key",
            Self::Model => "model",
            Self::Route => "route",
            Self::Replica => "replica",
            Self::Region => "region",
            Self::Reason => "reason",
            Self::Status => "status",
            Self::Code => "code",
        }
    }
}

/// A request that ended: what the access log has as a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestEntry<'a> {
    /// Number of the request on this node, starting at 1 when the node starts.
    pub number: u64,
    /// Time at which the request ended, in milliseconds since 1970.
    pub ended_ms: u64,
    /// Id of the request; the client's own if it sent one.
    pub id: Option<Cow<'a, str>>,
    /// Id of the request's trace, 32 hexadecimal digits.
    pub trace_id: Option<Cow<'a, str>>,
    /// Node that writes the line.
    pub node: Cow<'a, str>,
    /// Id of the client's key; null if no key was required.
    pub key: Option<Cow<'a, str>>,
    /// Tenant of the client.
    pub tenant: Option<Cow<'a, str>>,
    /// Route that matched.
    pub route: Option<Cow<'a, str>>,
    /// Model that served, after aliases are resolved.
    pub model: Option<Cow<'a, str>>,
    /// Model that could not serve, if a fallback served instead.
    pub fallback_for: Option<Cow<'a, str>>,
    /// Split and its arm, as `split/arm`.
    pub arm: Option<Cow<'a, str>>,
    /// Region that served, or was tried last: another region if the request was forwarded; null if
    /// none was tried.
    pub region: Option<Cow<'a, str>>,
    /// Replica that was tried last; null if none was tried, or if it is in another region.
    pub replica: Option<Cow<'a, str>>,
    /// Earlier attempts that failed, in order: at replicas and at other regions.
    #[serde(default)]
    pub tries: Vec<TryEntry<'a>>,
    /// Other regions that were excluded, if the request failed or regions were compared.
    #[serde(default)]
    pub left_out: Vec<LeftOutEntry<'a>>,
    /// Regions and countries where residency rules allow the request to be served, in words; null
    /// for everywhere.
    #[serde(default)]
    pub residency: Option<Cow<'a, str>>,
    /// Reason for the choice of the replica, e.g. `soonest`.
    pub reason: Option<Cow<'a, str>>,
    /// Reason for which the request was shed, e.g. `queue_full`.
    pub shed: Option<Cow<'a, str>>,
    /// Priority class, if the request was shed.
    pub priority: Option<u8>,
    /// True if another node forwarded the request to this one.
    pub is_guest: bool,
    /// Status sent to the client; 499 if the client disconnected first.
    pub status: u16,
    /// Status of a gRPC call.
    pub grpc_status: Option<u8>,
    /// Code of the failure, e.g. `replica_connect`; null for successful requests.
    #[serde(default)]
    pub code: Option<Cow<'a, str>>,
    /// Message of the gateway's own error, or the code or type of the replica's error.
    #[serde(default)]
    pub detail: Option<Cow<'a, str>>,
    /// How the request ended, e.g. `complete`, `cut`.
    pub end: Cow<'a, str>,
    /// Time from the request's head to its end, in milliseconds.
    pub duration_ms: f64,
    /// Time from the request's head to the first token, in milliseconds; null except for successful
    /// streams.
    pub first_token_ms: Option<f64>,
    /// True if the reply was a stream of events.
    pub is_stream: bool,
    /// Time that the gateway itself spent before it sent the request to a replica, in milliseconds.
    pub overhead_ms: f64,
    /// Number of retries.
    pub retries: u32,
    /// Result of a second attempt beside the first, e.g. `won`.
    pub hedge: Option<Cow<'a, str>>,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Prompt tokens found in the replica's cache.
    pub cached_tokens: u64,
    /// Generated tokens.
    pub completion_tokens: u64,
    /// True if prompt tokens or generated tokens are estimated, because the reply reported no
    /// plausible usage.
    pub tokens_estimated: bool,
    /// Prediction for the chosen replica; null if the policy predicts nothing.
    pub expected: Option<Expected>,
    /// Last comparison of regions; null if none was needed.
    pub compared: Option<ComparedRegions<'a>>,
}

/// A place that was asked in vain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TryEntry<'a> {
    /// Region of the attempt.
    pub region: Cow<'a, str>,
    /// Replica; null if another region chose it.
    pub replica: Option<Cow<'a, str>>,
    /// Code of the failure, e.g. `replica_reset`, `region_lost`.
    pub code: Cow<'a, str>,
    /// Status of the reply; null without one.
    pub status: Option<u16>,
    /// Time from the request's head to the failure, in milliseconds.
    pub after_ms: f64,
}

/// Another region that was not considered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOutEntry<'a> {
    /// Name of the region.
    pub region: Cow<'a, str>,
    /// Reason for leaving it out, e.g. `no_model`.
    pub reason: Cow<'a, str>,
}

/// Expectation of a replica, at the time of the decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expected {
    /// Time to the first token, in milliseconds.
    pub first_token_ms: f64,
    /// Part of that: time in queues.
    pub wait_ms: f64,
    /// Part of that: prefill of the uncached tokens.
    pub prefill_ms: f64,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Prompt tokens expected in the cache.
    pub cached_tokens: u32,
    /// Requests running at the replica.
    pub running: f64,
    /// Requests waiting at the replica.
    pub queued: f64,
}

/// Comparison of this region with others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedRegions<'a> {
    /// Cost in this region, in milliseconds; null if no replica here could serve.
    pub here_ms: Option<f64>,
    /// The cheapest other region that could take the request; null if none could.
    pub best: Option<Cow<'a, str>>,
    /// Cost in that region, in milliseconds.
    pub best_ms: Option<f64>,
    /// Reason for the decision, e.g. `better`, `none_better`.
    pub reason: Cow<'a, str>,
}

impl RequestEntry<'_> {
    /// Returns true if the request passes a filter.
    #[must_use]
    pub fn passes(&self, filter: &RequestFilter) -> bool {
        let is_newer = filter.after.is_none_or(|after| self.number > after);
        let is_field = |(field, wanted): &(FilterField, String)| self.is(*field, wanted);
        is_newer && (!filter.is_failed || self.is_failed()) && filter.fields.iter().all(is_field)
    }

    /// Returns the entry with texts of its own.
    #[must_use]
    pub fn into_owned(self) -> RequestEntry<'static> {
        let owned = |text: Option<Cow<'_, str>>| text.map(|text| Cow::Owned(text.into_owned()));
        RequestEntry {
            id: owned(self.id),
            trace_id: owned(self.trace_id),
            node: Cow::Owned(self.node.into_owned()),
            key: owned(self.key),
            tenant: owned(self.tenant),
            route: owned(self.route),
            model: owned(self.model),
            fallback_for: owned(self.fallback_for),
            arm: owned(self.arm),
            region: owned(self.region),
            replica: owned(self.replica),
            reason: owned(self.reason),
            shed: owned(self.shed),
            tries: self.tries.into_iter().map(TryEntry::into_owned).collect(),
            left_out: self.left_out.into_iter().map(LeftOutEntry::into_owned).collect(),
            residency: owned(self.residency),
            code: owned(self.code),
            detail: owned(self.detail),
            end: Cow::Owned(self.end.into_owned()),
            hedge: owned(self.hedge),
            compared: self.compared.map(|compared| ComparedRegions {
                best: owned(compared.best),
                reason: Cow::Owned(compared.reason.into_owned()),
                ..compared
            }),
            ..self
        }
    }

    fn is(&self, field: FilterField, wanted: &str) -> bool {
        let is = |value: &Option<Cow<'_, str>>| value.as_deref() == Some(wanted);
        match field {
            FilterField::Id => is(&self.id),
            FilterField::Tenant => is(&self.tenant),
            FilterField::Key => is(&self.key),
            FilterField::Model => is(&self.model),
            FilterField::Route => is(&self.route),
            FilterField::Replica => is(&self.replica),
            FilterField::Region => is(&self.region),
            FilterField::Reason => {
                let compared = self.compared.as_ref().map(|compared| &*compared.reason);
                is(&self.reason) || is(&self.shed) || compared == Some(wanted)
            }
            FilterField::Code => is(&self.code) || self.tries.iter().any(|it| it.code == wanted),
            FilterField::Status => {
                let class = format!("{}xx", self.status / 100);
                wanted == class || wanted == self.status.to_string()
            }
        }
    }

    fn is_failed(&self) -> bool {
        self.code.is_some() || self.status >= 400 || !matches!(&*self.end, "complete" | "answered")
    }
}

impl TryEntry<'_> {
    fn into_owned(self) -> TryEntry<'static> {
        TryEntry {
            region: Cow::Owned(self.region.into_owned()),
            replica: self.replica.map(|replica| Cow::Owned(replica.into_owned())),
            code: Cow::Owned(self.code.into_owned()),
            ..self
        }
    }
}

impl LeftOutEntry<'_> {
    fn into_owned(self) -> LeftOutEntry<'static> {
        LeftOutEntry {
            region: Cow::Owned(self.region.into_owned()),
            reason: Cow::Owned(self.reason.into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> RequestEntry<'static> {
        RequestEntry {
            number: 7,
            tenant: Some("acme".into()),
            reason: Some("soonest".into()),
            status: 503,
            code: Some("overloaded".into()),
            tries: vec![TryEntry { code: "region_full".into(), ..TryEntry::default() }],
            end: "answered".into(),
            compared: Some(ComparedRegions { reason: "queue_full".into(), ..Default::default() }),
            ..RequestEntry::default()
        }
    }

    fn by(field: FilterField, wanted: &str) -> RequestFilter {
        RequestFilter { fields: vec![(field, wanted.to_owned())], ..RequestFilter::default() }
    }

    #[test]
    fn a_filter_looks_at_the_fields_that_it_names() {
        for (field, wanted, passes) in [
            (FilterField::Tenant, "acme", true),
            (FilterField::Tenant, "other", false),
            (FilterField::Key, "acme", false),
            (FilterField::Reason, "soonest", true),
            (FilterField::Reason, "queue_full", true),
            (FilterField::Code, "overloaded", true),
            (FilterField::Code, "region_full", true),
            (FilterField::Code, "no_replica", false),
            (FilterField::Status, "503", true),
            (FilterField::Status, "5xx", true),
            (FilterField::Status, "4xx", false),
        ] {
            assert_eq!(entry().passes(&by(field, wanted)), passes, "{field:?} {wanted}");
        }
        let after = |after| RequestFilter { after: Some(after), ..RequestFilter::default() };
        assert!(entry().passes(&after(6)) && !entry().passes(&after(7)));
    }

    #[test]
    fn what_broke_off_has_failed_whatever_its_status() {
        let failed = RequestFilter { is_failed: true, ..RequestFilter::default() };
        let with = |status, end: &'static str| RequestEntry {
            status,
            code: None,
            end: end.into(),
            ..entry()
        };
        assert!(entry().passes(&failed));
        assert!(with(200, "cut").passes(&failed));
        assert!(!with(200, "complete").passes(&failed));
        let call = RequestEntry { code: Some("replica_error".into()), ..with(200, "complete") };
        assert!(call.passes(&failed), "a call may fail with the status 200");
    }
}
