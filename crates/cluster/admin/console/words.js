// Words for the names that decisions have in the API.

/** Reasons in words; others are shown as the API names them. */
const REASONS = {
  room: "a slot is free here", cached: "most of the prompt is in a cache there", session: "its session is there", no_replica: "no replica here serves the model",
  better: "the first token comes sooner there", only_way: "nothing else can serve it", none_better: "the first token comes sooner nowhere else",
  nobody_else: "no other region can take it", guest_without_room: "another region forwarded it, and no slot is free", queue_full: "the queue is full",
  all_busy: "all replicas are busy", slo: "its deadline could not be kept", late: "it has waited too long", evacuated: "this region is evacuated", outside_residency: "rules do not let it be served there", unreachable: "no connection", no_model: "it does not serve the model", circuit_open: "its replies fail", drained: "it is drained", nobody_in_reach: "no region can be reached",
  only: "the only one that can serve it", drawn: "drawn by lot", turn: "its turn", lighter_of_two: "the lighter of two drawn", lightest: "the lightest load",
  soonest: "the first token comes soonest there", adapter: "it has the adapter in memory", preferred: "the policy prefers it", warming_up: "it warms up and gets its part", substitute: "the one that the policy chose could not take it",
  overflow: "no other replica can serve it in time", pushed_out: "a more urgent request took its slot", waited: "it waited as long as the queue allows", replica_busy: "all replicas asked to be left alone",
  degraded: "few replicas are healthy, and more urgent requests need them", request_rate: "a limit on requests is used up", token_rate: "a limit on tokens is used up",
  concurrency: "a limit on requests at a time is used up", budget: "the budget of its tenant is spent", memory: "too much memory is in use", draining: "the node is about to stop",
  cut: "the replica broke off", stalled: "the replica fell silent", deadline_passed: "its deadline passed",
  cancelled_before_reply: "its client left before a reply", cancelled_in_reply: "its client left in the reply",
};
export const worded = (name) => (name ? (REASONS[name] ?? name.replaceAll("_", " ")) : null);
