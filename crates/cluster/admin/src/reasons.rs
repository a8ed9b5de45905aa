//! Reasons of decisions and their meanings: one table for console, command line and documents, made of
//! the declarations of those who decide.

use schemars::JsonSchema;
use serde::Serialize;
use spillway_health::ChangeReason;
use spillway_protocol::{ErrorKind, code_meaning, codes};
use spillway_route::{
    ArmReason, Cost, Objection, Obstacle, OverflowReason, PlanError, Reason, ShedReason, SpillCost,
    SpillReason,
};
use spillway_types::{AwayReason, End, EstimateReason, Hedge, LeftOutReason, reasons};

reasons! {
    /// Kind of reasons. Names are distinct among the reasons of one kind.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ReasonKind {
        /// Reasons for the choice of a replica.
        Replica = "replica";
        /// Reasons for the choice between this region and others.
        Region = "region";
        /// Reasons for shedding a request.
        Shed = "shed";
        /// Reasons why no replica was chosen.
        Refusal = "refusal";
        /// Reasons against a replica.
        ReplicaObstacle = "replica_obstacle";
        /// Reasons against another region.
        RegionObstacle = "region_obstacle";
        /// Reasons why a region was not considered.
        LeftOut = "left_out";
        /// Terms of the cost of a replica.
        ReplicaCost = "replica_cost";
        /// Terms of the cost of a region.
        RegionCost = "region_cost";
        /// Ends of requests.
        End = "end";
        /// Results of second attempts.
        Hedge = "hedge";
        /// Reasons for estimates of tokens.
        Estimate = "estimate";
        /// Reasons to send no new clients.
        Away = "away";
        /// Reasons for asking an overflow replica, beside those of `shed` and `refusal`.
        Overflow = "overflow";
        /// Reasons for changes of a replica's state.
        ReplicaChange = "replica_change";
        /// Reasons for the choice of an arm of a split.
        Arm = "arm";
        /// Codes of failures.
        Code = "code";
    }
}

/// A reason and its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReasonText {
    /// Name in records, metrics and logs.
    pub name: &'static str,
    /// Meaning for operators: a sentence without its full stop.
    pub text: &'static str,
    /// Message for the client, if it gets an error for the reason.
    pub message: Option<&'static str>,
    /// Code of the client's error.
    pub code: Option<&'static str>,
    /// Status of the client's error.
    pub status: Option<u16>,
    /// Presence of `Retry-After` in the client's error: `always`, `sometimes` or `never`.
    pub retry_after: Option<&'static str>,
    /// Page of the docs about that code, below `docs/`, with an anchor. The node has it at `/docs/`,
    /// ending with `.html` instead of `.md`.
    pub docs: Option<String>,
}

/// All reasons of a kind.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReasonList {
    /// Name of the kind.
    kind: &'static str,
    /// Description of the kind.
    text: &'static str,
    /// The reasons.
    reasons: Vec<ReasonText>,
}

/// Reasons that this node's version can give, and their meanings.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReasonsAnswer {
    /// The kinds of reasons.
    kinds: Vec<ReasonList>,
}

impl ReasonsAnswer {
    /// Returns all reasons.
    pub(crate) fn all() -> Self {
        let list = |kind: ReasonKind| ReasonList {
            kind: kind.name(),
            text: kind.text(),
            reasons: kind.reasons(),
        };
        Self { kinds: ReasonKind::ALL.into_iter().map(list).collect() }
    }
}

/// Lists all reasons of an enum.
macro_rules! all {
    ($reason:ident) => {
        $reason::ALL.map(|it| ReasonText::new(it.name(), it.text())).to_vec()
    };
}

impl ReasonKind {
    /// Returns the reasons of this kind. Terms of a cost come in the order of their columns.
    #[must_use]
    pub fn reasons(self) -> Vec<ReasonText> {
        match self {
            Self::Replica => all!(Reason),
            Self::Region => all!(SpillReason),
            Self::Shed => ShedReason::ALL.map(ReasonText::of_shed).to_vec(),
            Self::Refusal => all!(PlanError),
            Self::ReplicaObstacle => all!(Obstacle),
            Self::RegionObstacle => all!(Objection),
            Self::LeftOut => all!(LeftOutReason),
            Self::ReplicaCost => {
                Cost::terms().into_iter().map(|(name, text)| ReasonText::new(name, text)).collect()
            }
            Self::RegionCost => SpillCost::terms()
                .into_iter()
                .map(|(name, text)| ReasonText::new(name, text))
                .collect(),
            Self::End => all!(End),
            Self::Hedge => all!(Hedge),
            Self::Estimate => all!(EstimateReason),
            Self::Away => all!(AwayReason),
            Self::Overflow => all!(OverflowReason),
            Self::ReplicaChange => all!(ChangeReason),
            Self::Arm => all!(ArmReason),
            Self::Code => codes().map(ReasonText::of_code).collect(),
        }
    }

    /// Returns the meaning of a reason of this kind; `None` for a name that this version does not
    /// know.
    #[must_use]
    pub fn text_of(self, name: &str) -> Option<&'static str> {
        self.reasons().into_iter().find(|reason| reason.name == name).map(|reason| reason.text)
    }
}

impl ReasonText {
    fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text, message: None, code: None, status: None, retry_after: None, docs: None }
    }

    fn of_shed(reason: ShedReason) -> Self {
        Self {
            message: Some(reason.message()),
            code: Some(reason.code()),
            ..Self::new(reason.name(), reason.text()).answered_with(reason.code())
        }
    }

    fn of_code(code: &'static str) -> Self {
        let meaning = code_meaning(code).unwrap_or_default();
        Self::new(code, meaning).answered_with(code)
    }

    /// Adds status, `Retry-After` and page of the error with that code, if clients get it.
    fn answered_with(self, code: &str) -> Self {
        let kind = ErrorKind::of_code(code);
        let status = kind.map(|kind| kind.status().as_u16());
        let retry_after = kind.map(|kind| kind.retry_after().name());
        let page = if status.is_some() { "errors" } else { "access-log" };
        Self { status, retry_after, docs: Some(format!("reference/{page}.md#{code}")), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use spillway_types::RequestEntry;

    use super::*;

    #[test]
    fn each_reason_has_a_name_of_its_own_and_a_text() {
        for kind in ReasonKind::ALL {
            let reasons = kind.reasons();
            let names: BTreeSet<&str> = reasons.iter().map(|reason| reason.name).collect();
            assert_eq!(names.len(), reasons.len(), "{kind:?}");
            for ReasonText { name, text, message, .. } in &reasons {
                let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
                assert!(!name.is_empty() && name.chars().all(is_name), "{kind:?} {name}");
                assert!(is_sentence(text), "{kind:?} {name}: {text}");
                assert_eq!(kind.text_of(name), Some(*text));
                // A message follows the name of the program or a colon.
                let is_message =
                    |text: &str| text.starts_with(char::is_lowercase) && !text.ends_with('.');
                assert!(message.is_none_or(is_message), "{kind:?} {name}: {message:?}");
            }
            assert_eq!(kind.text_of("full_moon"), None);
        }
    }

    #[test]
    fn fields_of_requests_name_known_kinds() {
        for field in RequestEntry::fields() {
            let is_known = |name| ReasonKind::ALL.into_iter().any(|kind| kind.name() == name);
            assert!(field.values.is_none_or(is_known), "{field:?}");
        }
    }

    #[test]
    fn the_api_has_each_reason_of_each_kind() {
        let served = serde_json::to_value(ReasonsAnswer::all()).expect("JSON");
        let kinds = served["kinds"].as_array().expect("kinds");
        assert_eq!(kinds.len(), ReasonKind::ALL.len());
        for (list, kind) in kinds.iter().zip(ReasonKind::ALL) {
            assert_eq!((&list["kind"], &list["text"]), (&kind.name().into(), &kind.text().into()));
            let reasons = serde_json::to_value(kind.reasons()).expect("JSON");
            assert!(list["reasons"] == reasons && list["reasons"][0]["text"].is_string(), "{list}");
        }
    }

    /// Returns true for a line of plain text that begins with a capital letter and lacks a full stop.
    fn is_sentence(text: &str) -> bool {
        let is_plain = !text.contains(['\n', '[', ']']) && !text.contains("  ");
        is_plain && text.starts_with(|first: char| first.is_uppercase()) && !text.ends_with('.')
    }

    #[test]
    fn a_reason_that_clients_get_has_the_status_and_the_page_of_its_code() {
        for reason in ReasonKind::Shed.reasons() {
            let code = reason.code.expect("a code");
            assert!(reason.status.is_some(), "{code}");
            let is_late = reason.name == "late";
            let retry_after = if is_late { "sometimes" } else { "always" };
            assert_eq!(reason.retry_after, Some(retry_after), "{code}");
            assert_eq!(reason.docs, Some(format!("reference/errors.md#{code}")));
        }
        let cause = ReasonKind::Code.reasons().into_iter().find(|it| it.name == "region_full");
        let cause = cause.expect("a cause");
        assert_eq!(
            (cause.status, cause.docs.as_deref()),
            (None, Some("reference/access-log.md#region_full"))
        );
    }
}
