//! All tables on one page.

use std::fmt::Write;

use spillway_sim::WorkloadKind;

use super::batch::Row;
use super::limits::limits;
use super::tables::table;
use super::{Options, Study};

/// Returns the studies whose tables the page has.
pub(super) fn parts(options: &Options) -> Vec<Study> {
    let workloads = WorkloadKind::ALL.to_vec();
    let options = options.clone();
    vec![
        Study::Locality { options: options.clone() },
        Study::Hot { options: options.clone() },
        Study::Policies {
            policies: Vec::new(),
            workloads: workloads.clone(),
            options: options.clone(),
        },
        Study::Ablate { workloads, options },
    ]
}

/// Returns the page as Markdown.
pub(super) fn page(parts: &[(Study, Vec<Row>)], options: &Options) -> String {
    let mut text = format!(
        "{HEAD}\nSeed {}, load {:?}, {} nodes and {} replicas in each region unless a table says \
         otherwise, {:.0} s of virtual time after 60 s to warm up. `good/s` counts first tokens \
         within {:.0} ms.\n",
        options.seed,
        options.load,
        options.nodes,
        options.replicas,
        options.seconds,
        options.good_ms,
    );
    let _infallible = write!(text, "\n## What must hold\n\n{}", limits(parts));
    for (study, rows) in parts {
        let table = table(study, rows, options.good_ms);
        let _infallible = write!(text, "\n## {}\n\n{}", table.title, table.markdown());
    }
    text.push_str("\n![Times to the first token](simulation.svg)\n");
    text
}

const HEAD: &str = "\
# In simulation

Made by this command; edit nothing here by hand.

```sh
cargo run --release -p spillway-sim -- page --markdown docs/measured/simulation.md
```

A world of virtual time drives the gateway's own state machine, the crate `journey`: it decides what happens to a request next, and
the world carries that out and reports the result. The queue with its admission and promises, the budget of retries, `admit_guest`
(whether to take a request from another region), index, hot trie and latency models are the gateway's too (`route`, `prefix`). Limits of
requests in flight are found as the gateway finds them (`ConcurrencyLimit`), from what the world counts. A client
that is turned away comes again when it was told to, to the same node, while its 30 s last. A replica whose queue is full is one attempt;
its request is retried. The same seed gives the same figures on every machine.

Branches of the machine that never run here, and why:

- shares of tenants, and rests that replicas ask for: all clients are one tenant, and no replica asks
- guests that are welcome and on their way to a place: here they take it in the same moment
- homes of sessions, stored responses: the gateway remembers them, as both remember what was forwarded
- other regions' speeds: reports here have loads alone
- hedging (off by default), models that stand in, `degraded`, residency: none is set. Objectives for the
  first token (`slo`) are set in cells of `compare` alone
- evacuation, weights, prices and ramps of regions: no operator gives orders, and no region comes back
- a last place that another request takes in between, replicas and links that fail: no such thing happens in these studies

Three regions 90, 150 and 220 ms apart (there and back) have replicas that are the engine model of
docs/reference/emulator.md as an L4 with its 40,000 tokens of KV cache, so that what is cached is always less than what is asked for.
What nodes know is late: replicas are looked at every 100 ms and known 100 ms later, neighbours hear of a request's prompt after
30 ms, and the hot trie changes every 2 s, 300 ms after a proposal. Loads of neighbours and of other regions travel by the gossip of
the gateway itself (`machine`): its datagrams take half a round trip, or 0.25 ms within a region, and up to a fifth more by chance. Speeds are learned
from replies; nobody is told them. `omniscient` is one router beside all replicas, which knows all caches and loads at once.

Full load is the rate from which on even that router serves fewer requests in time, not more. An L4 with any request at all
computes all the time, so how busy it is shows in `KV held`. `work skew` is what the busiest replica of a region computed, less
the reading of weights, over the mean of its region; the highest of the three regions stands here. `elsewhere` is served by other
regions, `waited` waited in a node. `error` is how far predicted times to the first token were from what was seen.

Overloaded setups turn requests away that would come too late, so that requests fail there. Policies that read no caches do not
weigh what a prompt costs to read in another region.

Where its operator says so, a world continues streams (`continues_streams`; off in all studies). Then each reply that has begun has the
gateway's state machine of a reply, and its searches for another place are those of the gateway (`Reply`, `ContinuedStream`). Tokens are
reported one by one. A killed replica breaks its streams at once; a region that is out of reach is noticed by the gossip and a second of
silence, and what was sent over a path that is cut arrives once it is whole. Drained replicas and regions get no new requests, and their
streams leave for places with room. A continued stream is a request of its own: its prompt ends with the text so far, so the engine finds
what is cached of it. Left out: nodes of other regions continue no streams of guests, whose own node does; a reply that is left ends at
once at its replica, whatever the path there; clients take each token at once, and leave no stream.

What it leaves out: lost messages, failures, tokens (a block is a block), the time that the gateway itself takes, and attention
that grows with the square of a prompt.
";
