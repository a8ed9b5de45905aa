//! `spillway get`: records of the cluster, and their kinds.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use spillway_node::Resource;

use super::kind::{Kind, path_of};
use super::{limits, splits};
use crate::cluster::calls::{list, show};
use crate::cluster::client::AdminClient;
use crate::cluster::text;
use crate::cluster::view::regions;
use crate::connect::Connect;
use crate::output;
use crate::screen::{width, wrapped};

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway get\n\
    Example: spillway get tenants\n\
    Example: spillway get limit tenant:acme --json\n\
    Example: spillway get tenant --fields\n\n\
    `get limits` also shows the share of each region, `get splits` how the arms do, and `get regions` \
    load and distance. Of regions, requests FROM other regions are served here; requests TO a region \
    are served there for this node, and SENT counts them since its start.")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    connect: Connect,
    /// Kind of record; without it, the kinds are listed.
    #[arg(value_enum)]
    kind: Option<Kind>,
    /// Name of a record; without it, all records are listed.
    name: Option<String>,
    /// Lists the fields that records of the kind can have, without contacting a node.
    #[arg(long, requires = "kind", conflicts_with = "name")]
    fields: bool,
}

/// Shows one record, all records of a kind, or the kinds.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn run(args: &GetArgs) -> Result<()> {
    let Some(Kind(resource)) = args.kind else {
        let rows = Resource::ALL.iter().map(|it| [it.name(), it.about()].map(str::to_owned));
        return explain(["kind", "records"], rows.collect(), args.connect.json);
    };
    if args.fields {
        let rows = resource.fields().into_iter().map(|field| [field.name, field.about]);
        return explain(["field", "meaning"], rows.collect(), args.connect.json);
    }
    let client = AdminClient::new(&args.connect)?;
    if let Some(name) = &args.name {
        let answer = client.read(&path_of(resource, name)?).await?;
        return show(&client, &answer, &text::facts(&answer["item"]));
    }
    match resource {
        Resource::Limits => limits::list(&client).await,
        Resource::Splits => splits::list(&client).await,
        Resource::Regions => regions::list(&client).await,
        _ => list(&client, resource).await,
    }
}

/// Prints names with their meanings, in lines that fit the terminal, or as a JSON array of objects.
fn explain(headings: [&str; 2], rows: Vec<[String; 2]>, as_json: bool) -> Result<()> {
    if as_json {
        let [name, meaning] = headings;
        let rows: Value = rows
            .into_iter()
            .map(|[first, second]| json!({ name: first, meaning: second }))
            .collect();
        return Ok(output::line(&rows.to_string())?);
    }
    Ok(output::line(&explained(&rows, width()))?)
}

/// Formats names with their meanings, in lines of at most `width` characters.
fn explained(rows: &[[String; 2]], width: usize) -> String {
    let indent = rows.iter().map(|[name, _]| name.len() + 2).max().unwrap_or_default();
    let mut text = Vec::new();
    for [name, meaning] in rows {
        let lines = wrapped(meaning, width.saturating_sub(indent));
        let names = std::iter::once(name.as_str()).chain(std::iter::repeat(""));
        text.extend(lines.iter().zip(names).map(|(line, name)| format!("{name:<indent$}{line}")));
    }
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meanings_wrap_behind_their_names() {
        let rows = [["title", "Title of the tenant."], ["is_suspended", "True if refused."]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(
            explained(&rows, 28),
            "title         Title of the\n              tenant.\nis_suspended  True if\n              refused."
        );
    }
}
