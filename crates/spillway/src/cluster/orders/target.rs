//! `spillway drain`, `undrain` and `weight`: orders about one region or replica.

use anyhow::{Result, anyhow, bail};
use http::Method;
use serde_json::{Value, json};
use spillway_types::Percent;

use super::target_args::{DrainArgs, UndrainArgs, WeightArgs};
use crate::cluster::calls::{change, show_change};
use crate::cluster::client::{AdminClient, Refusal, escaped};
use crate::output;

/// Gives a region or a replica no new work, or shows what that would move.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn drain(args: &DrainArgs) -> Result<()> {
    if args.evacuate && args.target.contains('/') {
        bail!("only a region can be evacuated: drain the replica, or leave out --evacuate");
    }
    let client = AdminClient::new(&args.connect)?;
    let path = target_path(&args.target, if args.evacuate { "evacuate" } else { "drain" });
    let answer = client.try_change(Method::POST, &path, None, &args.change).await?;
    let answer = answer.map_err(|refusal| refused(refusal, &args.target, "drain"))?;
    show_change(&client, &answer, args.change.dry_run)?;
    if args.change.dry_run && !client.as_json {
        for line in moved(&answer["moved"]) {
            output::line(&line)?;
        }
    }
    Ok(())
}

/// Sends requests to a region or a replica again.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn undrain(args: &UndrainArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    let path = target_path(&args.target, "undrain");
    let answer = client.try_change(Method::POST, &path, None, &args.change).await?;
    let answer = answer.map_err(|refusal| refused(refusal, &args.target, "undrain"))?;
    show_change(&client, &answer, args.change.dry_run)
}

/// Sets the share of requests that a region or a replica takes.
///
/// # Errors
/// Returns an error if the weight can't be read, or the node can't be reached or refuses.
pub(crate) async fn weight(args: &WeightArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    let body = match (args.target.split_once('/'), args.weight.as_str()) {
        (Some(_), "own") => json!({ "weight": null }),
        (Some((region, replica)), weight) if weight.ends_with('%') => {
            let path = format!("/v1/replicas/{}/{}", escaped(region), escaped(replica));
            let own = &client.read(&path).await?["item"]["record"]["weight"];
            json!({ "weight": share_of(own.as_f64().unwrap_or(1.0), weight)? })
        }
        (Some(_), weight) => json!({ "weight": whole(weight)? }),
        (None, weight) => json!({ "weight_percent": percent(weight)? }),
    };
    let path = target_path(&args.target, "weight");
    change(&client, Method::POST, &path, Some(&body), &args.change).await
}

/// Returns the error of an order that a node refused. A node without a cluster has a command of its own
/// for its replicas.
fn refused(refusal: Refusal, target: &str, action: &str) -> anyhow::Error {
    if refusal.code != "no_cluster" {
        return anyhow!(refusal.text);
    }
    let replica = target.split_once('/').map_or(target, |(_, replica)| replica);
    anyhow!(
        "this node is in no cluster (no_cluster): `spillway replicas {action} {replica}` does it for a \
         replica at this node alone"
    )
}

/// Describes the requests that a drain would move, and the load of those that would take them.
fn moved(moved: &Value) -> Vec<String> {
    let Some(now) = moved["in_flight"].as_f64() else { return Vec::new() };
    let what = match moved["requests_per_s"].as_f64() {
        Some(rate) => format!("{rate:.1} requests/s move, {now:.0} of them in flight now"),
        None => format!("{now:.0} requests in flight move"),
    };
    let mut lines = vec![format!("estimate: {what}")];
    let to = moved["to"].as_array().map_or(&[][..], Vec::as_slice);
    lines.extend(to.iter().map(|it| format!("  {}", load_change(it))));
    if to.is_empty() {
        lines.push("  nobody else serves these models".to_owned());
    }
    let left = moved["without_slot"].as_f64().unwrap_or_default();
    if left > 0.0 {
        lines.push(format!("  {left:.0} in flight find no free slot: they wait or are refused"));
    }
    lines
}

/// Describes the load of a region or a replica before and after.
fn load_change(change: &Value) -> String {
    let number = |name: &str| change[name].as_f64().unwrap_or_default();
    let (now, more) = (number("in_flight"), number("more"));
    let name = change["name"].as_str().unwrap_or_default();
    let then = now + more;
    match change["slots"].as_f64().filter(|slots| *slots > 0.0) {
        Some(slots) => {
            let percent = |used: f64| used / slots * 100.0;
            let (before, after) = (percent(now), percent(then));
            format!(
                "{name}: {now:.0} + {more:.0} of {slots:.0} slots in flight, {before:.0} % then {after:.0} %"
            )
        }
        None => format!("{name}: {now:.0} + {more:.0} in flight, its slots are not known"),
    }
}

/// Parses a region's weight. A weight above the usual is rare, and more often a slip such as a figure
/// in thousandths, so it needs its unit.
fn percent(text: &str) -> Result<Percent> {
    let percent: Percent =
        text.parse().map_err(|error| anyhow!("{text:?} is no weight: {error}"))?;
    if percent > Percent::ALL && !text.ends_with('%') {
        bail!("{text} is {percent} percent of the usual: write {percent}% if that is meant");
    }
    Ok(percent)
}

/// Returns this share of a replica's own weight, as a weight.
fn share_of(own: f64, text: &str) -> Result<u32> {
    let percent: Percent = text.parse().map_err(|_| no_weight(text))?;
    let percent = f64::from(percent.permille()) / 10.0;
    Ok((own * percent / 100.0).round().max(1.0) as u32)
}

fn whole(text: &str) -> Result<u32> {
    text.parse().map_err(|_| no_weight(text))
}

fn no_weight(text: &str) -> anyhow::Error {
    anyhow!(
        "{text:?} is no weight of a replica: give a whole number such as 3, a share of its own \
         weight such as 50%, or `own`"
    )
}

/// Returns the path of an action on a region, or on a replica as `REGION/REPLICA`.
fn target_path(target: &str, action: &str) -> String {
    match target.split_once('/') {
        Some((region, replica)) => {
            format!("/v1/replicas/{}/{}/{action}", escaped(region), escaped(replica))
        }
        None => format!("/v1/regions/{}/{action}", escaped(target)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_with_a_slash_is_a_replica() {
        assert_eq!(target_path("eu", "drain"), "/v1/regions/eu/drain");
        assert_eq!(target_path("eu/a b", "weight"), "/v1/replicas/eu/a%20b/weight");
    }

    #[test]
    fn a_replica_has_a_whole_weight_or_a_share_of_its_own() {
        assert_eq!(whole("3").unwrap(), 3);
        assert_eq!((share_of(4.0, "50%").unwrap(), share_of(1.0, "50%").unwrap()), (2, 1));
        for wrong in [whole("half").unwrap_err(), share_of(1.0, "x%").unwrap_err()] {
            assert!(wrong.to_string().contains("50%, or `own`"), "{wrong}");
        }
    }

    #[test]
    fn a_drain_says_what_moves_where_and_what_that_does_to_loads() {
        let answer = json!({
            "requests_per_s": 3.04, "in_flight": 6.0, "without_slot": 0.0,
            "to": [{ "name": "us", "in_flight": 8.0, "more": 6.0, "slots": 100.0 },
                   { "name": "ap", "in_flight": 1.0, "more": 0.0, "slots": null }],
        });
        let lines = moved(&answer);
        assert_eq!(lines[0], "estimate: 3.0 requests/s move, 6 of them in flight now");
        assert_eq!(lines[1], "  us: 8 + 6 of 100 slots in flight, 8 % then 14 %");
        assert_eq!(lines[2], "  ap: 1 + 0 in flight, its slots are not known");
        assert_eq!(lines.len(), 3);
        let full =
            json!({ "requests_per_s": null, "in_flight": 6.0, "without_slot": 6.0, "to": [] });
        let lines = moved(&full);
        assert_eq!(lines[0], "estimate: 6 requests in flight move");
        assert_eq!(lines[1], "  nobody else serves these models");
        assert_eq!(lines[2], "  6 in flight find no free slot: they wait or are refused");
        assert!(moved(&Value::Null).is_empty());
    }

    #[test]
    fn a_region_has_a_weight_in_percent_and_more_than_all_is_no_slip() {
        let read = |text| percent(text).map(|percent| json!(percent).to_string());
        for (text, percent) in
            [("0", "0"), ("50", "50"), ("12.5", "12.5"), ("100%", "100"), ("150%", "150")]
        {
            assert_eq!(read(text).unwrap(), percent);
        }
        let slip = read("500").unwrap_err().to_string();
        assert!(slip.contains("500 percent") && slip.contains("500%"), "{slip}");
        assert!(read("half").unwrap_err().to_string().contains("one decimal"));
    }
}
