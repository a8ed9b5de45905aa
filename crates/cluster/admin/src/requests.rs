//! Interface to the node's memory of the requests that ended last.

use std::fmt::Debug;
use std::sync::Arc;

use spillway_types::{RequestEntry, reasons};

/// Memory of the requests that ended last on this node. Needs no cluster.
pub trait Requests: Debug + Send + Sync {
    /// Returns requests that pass the filter, newest first, at most `limit`.
    fn recent(&self, filter: &RequestFilter, limit: usize) -> Vec<RequestEntry>;
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

reasons! {
    /// Field of a request that a filter can look at. Its name is the query parameter.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FilterField {
        /// Id of the request; a client may use one several times.
        Id = "id";
        /// Tenant of the client.
        Tenant = "tenant";
        /// Id of the client's key.
        Key = "key";
        /// Model that served.
        Model = "model";
        /// Route that matched.
        Route = "route";
        /// Replica that was asked last.
        Replica = "replica";
        /// Region that served.
        Region = "region";
        /// Reason of the decision, or of the refusal.
        Reason = "reason";
        /// Status that the client was sent.
        Status = "status";
        /// Code of the failure, or of one of its tries.
        Code = "code";
    }
}

impl RequestFilter {
    /// Returns true if a request passes.
    #[must_use]
    pub fn passes(&self, entry: &RequestEntry) -> bool {
        let is_newer = self.after.is_none_or(|after| entry.number > after);
        let mut fields = self.fields.iter();
        is_newer
            && (!self.is_failed || is_failed(entry))
            && fields.all(|(field, wanted)| is(entry, *field, wanted))
    }
}

fn is(entry: &RequestEntry, field: FilterField, wanted: &str) -> bool {
    let is = |value: &Option<Arc<str>>| value.as_deref() == Some(wanted);
    match field {
        FilterField::Id => is(&entry.id),
        FilterField::Tenant => is(&entry.tenant),
        FilterField::Key => is(&entry.key),
        FilterField::Model => is(&entry.model),
        FilterField::Route => is(&entry.route),
        FilterField::Replica => is(&entry.replica),
        FilterField::Region => is(&entry.region),
        FilterField::Reason => {
            let compared = entry.compared.as_ref().map(|compared| &*compared.reason);
            is(&entry.reason) || is(&entry.shed) || compared == Some(wanted)
        }
        FilterField::Code => is(&entry.code) || entry.tries.iter().any(|it| &*it.code == wanted),
        FilterField::Status => {
            let class = format!("{}xx", entry.status / 100);
            wanted == class || wanted == entry.status.to_string()
        }
    }
}

fn is_failed(entry: &RequestEntry) -> bool {
    entry.code.is_some() || entry.status >= 400 || !matches!(&*entry.end, "complete" | "answered")
}

#[cfg(test)]
mod tests {
    use spillway_types::{ComparedRegions, TryEntry};

    use super::*;

    fn entry() -> RequestEntry {
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
            assert_eq!(by(field, wanted).passes(&entry()), passes, "{field:?} {wanted}");
        }
        let after = |after| RequestFilter { after: Some(after), ..RequestFilter::default() };
        assert!(after(6).passes(&entry()) && !after(7).passes(&entry()));
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
        assert!(failed.passes(&entry()));
        assert!(failed.passes(&with(200, "cut")));
        assert!(!failed.passes(&with(200, "complete")));
        let call = RequestEntry { code: Some("replica_error".into()), ..with(200, "complete") };
        assert!(failed.passes(&call), "a call may fail with the status 200");
    }
}
