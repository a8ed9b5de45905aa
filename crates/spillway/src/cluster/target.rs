//! `spillway drain`, `undrain` and `weight`: orders about one region or replica.

use anyhow::{Result, anyhow, bail};
use http::Method;
use serde_json::{Value, json};
use spillway_types::Percent;

use super::args::{DrainArgs, UndrainArgs, WeightArgs};
use super::calls::change;
use super::client::{AdminClient, escaped};
use crate::output;

/// Gives a region or a replica no new work, or shows what that would move.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(super) async fn drain(args: &DrainArgs) -> Result<()> {
    if args.evacuate && args.target.contains('/') {
        bail!("only a region can be evacuated: drain the replica, or leave out --evacuate");
    }
    let client = AdminClient::new(&args.connect)?;
    let path = target_path(&args.target, if args.evacuate { "evacuate" } else { "drain" });
    change(&client, Method::POST, &path, None, &args.change).await?;
    if args.change.dry_run && !client.as_json {
        let moved = match args.target.split_once('/') {
            Some((_, replica)) => of_replica(&client.read("/replicas").await?, replica),
            None => of_region(&client.read("/v1/world").await?, &args.target, args.evacuate),
        };
        for line in moved {
            output::line(&line)?;
        }
    }
    Ok(())
}

/// Gives a region or a replica work again.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(super) async fn undrain(args: &UndrainArgs) -> Result<()> {
    let path = target_path(&args.target, "undrain");
    change(&AdminClient::new(&args.connect)?, Method::POST, &path, None, &args.change).await
}

/// Sets how much work a region or a replica takes.
///
/// # Errors
/// Returns an error if the weight can't be read, or the node can't be reached or refuses.
pub(super) async fn weight(args: &WeightArgs) -> Result<()> {
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

/// Describes the requests that move when a region is drained or evacuated, and the room of the others.
fn of_region(world: &Value, region: &str, is_evacuated: bool) -> Vec<String> {
    let regions = || world["regions"].as_array().into_iter().flatten();
    let Some(own) = regions().find(|it| it["region"] == region) else { return Vec::new() };
    let now = own["in_flight"].as_f64().unwrap_or_default();
    let is_up = |it: &&Value| {
        it["region"] != region && it["is_heard"] == true && it["is_reachable"] == true
    };
    let room = |it: &Value| match (it["in_flight"].as_f64(), it["places"].as_f64()) {
        (Some(used), Some(places)) => format!("{used:.0} of {places:.0} slots used"),
        _ => "its slots are not known".to_owned(),
    };
    let others: Vec<String> =
        regions().filter(is_up).map(|it| format!("{} ({})", name(it), room(it))).collect();
    let room = others.join(", ");
    let moves = match (is_evacuated, others.is_empty()) {
        (true, true) => "no other region is up to serve its clients".to_owned(),
        (true, false) => format!("its clients are served elsewhere; up: {room}"),
        (false, true) => "its own clients stay; no other region is up".to_owned(),
        (false, false) => {
            format!("its own clients stay, and those of other regions go elsewhere; up: {room}")
        }
    };
    vec![format!("{region} has {now:.0} requests at its replicas now, which may finish"), moves]
}

/// Describes the requests of a replica, and the others that serve its models.
fn of_replica(replicas: &Value, replica: &str) -> Vec<String> {
    let all = || replicas.as_array().into_iter().flatten();
    // Replicas of other regions are known to a node there.
    let Some(own) = all().find(|it| it["name"] == replica) else { return Vec::new() };
    let now = own["in_flight"].as_f64().unwrap_or_default();
    let models: Vec<&Value> = own["models"].as_array().into_iter().flatten().collect();
    let serves = |it: &&Value| {
        let mut served = it["models"].as_array().into_iter().flatten();
        it["name"] != replica && it["state"] == "serving" && served.any(|it| models.contains(&it))
    };
    let others: Vec<String> = all().filter(serves).map(name).collect();
    let rest = match others.is_empty() {
        true => "no other replica of its region serves its models".to_owned(),
        false => format!("its models stay served by {}", others.join(", ")),
    };
    vec![format!("{replica} has {now} requests now, which may finish"), rest]
}

fn name(item: &Value) -> String {
    let name = item["region"].as_str().or_else(|| item["name"].as_str());
    name.unwrap_or_default().to_owned()
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
    fn a_drain_says_what_moves_and_where_there_is_room() {
        let region = |name: &str, is_up: bool| {
            json!({ "region": name, "is_heard": is_up, "is_reachable": is_up, "in_flight": 6.0,
                    "places": 128.0 })
        };
        let world =
            json!({ "regions": [region("us", true), region("eu", true), region("ap", false)] });
        let told = of_region(&world, "us", true).join("\n");
        assert!(told.contains("us has 6 requests") && told.contains("served elsewhere"), "{told}");
        assert!(told.ends_with("elsewhere; up: eu (6 of 128 slots used)"), "{told}");
        assert!(of_region(&world, "us", false).join("\n").contains("its own clients stay"));
        let alone = json!({ "regions": [region("us", true)] });
        assert!(of_region(&alone, "us", true).join("\n").contains("no other region is up"));
        assert!(of_region(&world, "mars", true).is_empty());

        let replica = |name: &str| json!({ "name": name, "state": "serving", "models": ["m"], "in_flight": 2 });
        let told = of_replica(&json!([replica("a"), replica("b")]), "a").join("\n");
        assert!(told.contains("a has 2 requests") && told.ends_with("served by b"), "{told}");
        let told = of_replica(&json!([replica("a")]), "a").join("\n");
        assert!(told.contains("no other replica"), "{told}");
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
