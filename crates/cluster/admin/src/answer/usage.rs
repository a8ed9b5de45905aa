//! Usage of clients, of all nodes together.

use std::time::SystemTime;

use http::StatusCode;
use spillway_types::unix_ms;
use spillway_usage::{Day, UsageQuery};

use crate::call::AdminCall;
use crate::error::ApiError;
use crate::overview::Overview;
use crate::query::Query;
use crate::reply::{Reply, json};
use crate::requests::FilterField;

/// Answers what clients used, as far as nodes can be asked.
pub(crate) async fn usage(by: Option<&dyn Overview>, call: &AdminCall) -> Result<Reply, ApiError> {
    let by = by.ok_or_else(|| ApiError::internal("this process does not count usage"))?;
    let today = Day::of_ms(unix_ms(SystemTime::now()));
    let question = question(&call.query, today)?;
    Ok(json(StatusCode::OK, &by.usage(question).await))
}

/// Returns the question in a query: without days, the month up to today.
///
/// # Errors
/// Returns an error if the last day is before the first.
fn question(query: &Query, today: Day) -> Result<UsageQuery, ApiError> {
    let until = query.until.unwrap_or(today);
    let since = query.since.unwrap_or_else(|| until.month());
    if since > until {
        let cause = format!("{since} is after {until}");
        return Err(ApiError::bad_request(cause, "give `since` a day that is not after `until`"));
    }
    let field = |wanted: FilterField| {
        let found = query.fields.iter().find(|(field, _)| *field == wanted);
        found.map(|(_, value)| value.clone())
    };
    let all = UsageQuery::of_days(since, until);
    Ok(UsageQuery {
        tenant: field(FilterField::Tenant),
        key: field(FilterField::Key),
        model: field(FilterField::Model),
        by: query.by.clone().unwrap_or(all.by),
        ..all
    })
}

#[cfg(test)]
mod tests {
    use spillway_usage::UsageBy;

    use super::*;

    const KNOWN: [&str; 6] = ["since", "until", "tenant", "key", "model", "by"];

    fn asked(text: &str) -> Result<UsageQuery, ApiError> {
        question(&Query::parse(Some(text), &KNOWN)?, "2026-11-27".parse().unwrap())
    }

    fn days(text: &str) -> String {
        let query = asked(text).unwrap();
        format!("{} {}", query.since, query.until)
    }

    #[test]
    fn without_days_the_month_up_to_today_is_meant() {
        assert_eq!(days(""), "2026-11-01 2026-11-27");
        assert_eq!(days("since=2026-01-31"), "2026-01-31 2026-11-27");
        assert_eq!(days("until=2026-02-14"), "2026-02-01 2026-02-14");
        assert!(asked("since=2026-11-28").is_err());
        assert!(asked("since=yesterday").is_err());
    }

    #[test]
    fn what_is_asked_for_comes_along() {
        let query = asked("tenant=a%20b&key=k&model=m&by=model,day").unwrap();
        assert_eq!(query.tenant.as_deref(), Some("a b"));
        assert_eq!((query.key.as_deref(), query.model.as_deref()), (Some("k"), Some("m")));
        assert_eq!(query.by, [UsageBy::Day, UsageBy::Model]);
        assert_eq!(asked("by=").unwrap().by, []);
        assert!(asked("by=colour").is_err());
    }
}
