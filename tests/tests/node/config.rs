//! Config errors are reported with their place and a remedy.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use spillway_config::{Config, ConfigError, ConfigErrors, Severity};

use crate::certificates::Certificates;

const LISTENER: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\n";
const REPLICA: &str = "[[replica]]\nname = \"a\"\nurl = \"http://h:1\"\nmodels = [\"tiny\"]\n";

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("file.toml"), []).map_err(sole)
}

/// Returns the one error that a text with one fault is answered with.
pub(crate) fn sole(errors: ConfigErrors) -> ConfigError {
    let is_error = |found: &&ConfigError| found.severity == Severity::Error;
    let mut found = errors.iter().filter(is_error).cloned();
    let first = found.next().expect("an error");
    assert_eq!(found.next(), None, "one fault is told once:\n{errors}");
    first
}

/// The text with a listener and a replica before it is wrong at `line` (counted from its own first
/// one) and `column`.
pub(crate) fn check(text: &str, (line, column): (usize, usize), message: &str, remedy: &str) {
    let whole = format!("{LISTENER}{REPLICA}{text}");
    let error = parse(&whole).expect_err(text);
    let before = 6;
    assert_eq!(error.position(), Some((before + line, column)), "{text}: {error}");
    assert!(error.message.contains(message), "{text}: {error}");
    assert!(error.remedy.contains(remedy), "{text}: {error}");
    let shown = error.to_string();
    assert!(shown.starts_with(&format!("file.toml:{}:{column}: ", before + line)), "{shown}");
}

#[test]
fn faults_are_told_with_line_column_and_remedy() {
    check("[node]\nnam = \"x\"\n", (2, 1), "unknown key `nam`", "spelling: `name`");
    check(
        "[limits]\nconnections_max = \"many\"\n",
        (2, 19),
        "is a string",
        "a whole number from 1 on",
    );
    check("[limits]\nconnections_max = -1\n", (2, 19), "can't be -1", "from 1 on");
    check("[access_log]\nrequests = \"error\"\n", (2, 12), "error", "requests = \"errors\"");
    check("[aliases]\n\"gpt\" = \"huge\"\n", (2, 9), "\"huge\"", "tiny");
    check("[[route]]\nname = \"r\"\nmodels = [\"huge\"]\n", (3, 11), "\"huge\"", "tiny");
    let below = "[[route]]\nname = \"r\"\nmodel = \"huge\"\npath_prefix = \"/x\"\n";
    check(below, (3, 9), "\"huge\"", "tiny");
    check("[[route]]\nname = \"r\"\npool = \"gpu\"\n", (3, 8), "\"gpu\"", "pool");
    check("[[route]]\nname = \"r\"\npath_prefix = \"x\"\n", (3, 15), "slash", "/v1");
    check("[[route]]\nname = \"r\"\npolicy = \"best\"\n", (3, 10), "best", "use one of: random");
    let germany = "[[route]]\nname = \"r\"\ncountries = [\"Germany\"]\n";
    check(germany, (3, 13), "two capital letters", "correct the value");
    check_hash_by();
    check("[prefix]\nindex_bytes_max = 5\n", (2, 19), "can't be 5", "from 1048576 on");
    check("[[route]]\npolicy = \"random\"\n", (1, 1), "has no `name`", "add name =");
    let two = "[[route]]\nname = \"r\"\n[[route]]\nname = \"r\"\n";
    check(two, (4, 8), "a second route", "own name");
    check(REPLICA, (2, 8), "a second replica", "own name");
    check("[node\n", (1, 6), "", "correct");
}

fn check_hash_by() {
    let route = |lines: &str| format!("[[route]]\nname = \"r\"\n{lines}\n");
    for (hash_by, message) in [
        ("", "can't hash by \"\""),
        ("session", "expected header:NAME"),
        ("header:", "can't hash by"),
        ("prompt_prefix:0", "prompt_prefix:BLOCKS"),
    ] {
        let text = route(&format!("policy = \"consistent_hash\"\nhash_by = \"{hash_by}\""));
        check(&text, (4, 11), message, "correct the value");
    }
    for policy in ["consistent_hash", "bounded_consistent_hash"] {
        let text = route(&format!("policy = \"{policy}\""));
        check(&text, (3, 10), "nothing to hash by", "add hash_by");
    }
    let text = route("policy = \"random\"\nhash_by = \"user\"");
    check(&text, (4, 11), "random does not hash", "remove hash_by");
    check(
        &route("hash_by = \"user\""),
        (3, 11),
        "predicted_latency does not hash",
        "remove hash_by",
    );
    check(
        &route("path_prefix = \"/x\"\nhash_by = \"client_ip\""),
        (4, 11),
        "power_of_two does not hash",
        "remove hash_by",
    );
    for (line, message) in [
        ("hedge = { budget_percent = 5 }", "does not say after which time"),
        ("hedge = { after_ms = 0 }", "does not say after which time"),
        ("hedge = { after_ms = 1, after = \"p95\" }", "does not say after which time"),
        ("hedge = { after = \"p100\" }", "no quantile"),
    ] {
        let column = line.find(" = ").expect("a value") + 4;
        check(&route(line), (3, column), message, "use");
    }
    check(&route("slo_ms = 0"), (3, 10), "can't be 0", "from 1 on");
    let hedge = route("hedge = { after_ms = 1, budget_percent = 0 }");
    check(&hedge, (3, 42), "can't be 0", "from 1 to 100");
    check("[spill]\ntenant_room_percent = 101\n", (2, 23), "can't be 101", "from 0 to 100");
    let raw = "path_prefix = \"/x\"\npolicy = \"consistent_hash\"\nhash_by = \"user\"";
    check(&route(raw), (5, 11), "reads no bodies", "client_ip");
}

#[test]
fn faults_of_replicas_are_told_with_line_column_and_remedy() {
    let replica =
        |lines: &str| format!("[[replica]]\nname = \"b\"\nmodels = [\"tiny\"]\n{lines}\n");
    for (url, message) in [
        ("host:80", "scheme"),
        ("ftp://host", "scheme \"ftp\""),
        ("http://", "not a URL"),
        ("http://host/v1?a=b", "query"),
        ("http://host/a/../v1", "dot segments"),
        ("http://host//v1", "doubled slashes"),
        ("http://host:99999", "no port"),
        ("http://host:", "no port"),
        ("http://user:secret@host", "user"),
        ("http://169.254.169.254", "metadata service"),
        ("http://[fd00:ec2::254]:80", "metadata service"),
        ("http://[::ffff:169.254.1.1]", "link-local"),
    ] {
        check(&replica(&format!("url = \"{url}\"")), (4, 7), message, "");
    }
    let url = "url = \"https://h:1\"";
    let missing = format!("{url}\ntls = {{ ca = \"nowhere.pem\" }}");
    check(&replica(&missing), (5, 14), "nowhere.pem", "path");
    let half = format!("{url}\ntls = {{ certificate = \"nowhere.pem\" }}");
    check(&replica(&half), (5, 23), "no key", "add key");
    let half = format!("{url}\ntls = {{ key = \"nowhere.pem\" }}");
    check(&replica(&half), (5, 15), "no client certificate", "add certificate");
    let grpc = "url = \"http://h:1\"\ngrpc_url = \"http://h:2/v1\"";
    check(&replica(grpc), (5, 12), "has a path", "http://host:port");
    let plain = "url = \"http://h:1\"\ntls = { ca = \"nowhere.pem\" }";
    check(&replica(plain), (4, 7), "http://", "https://");
    let weight = "url = \"http://h:1\"\nweight = 0";
    check(&replica(weight), (5, 10), "weight", "1 to 1000");
    let none = "url = \"http://h:1\"\ncredential = { value_env = \"SPILLWAY_TEST_NOT_SET\" }";
    check(&replica(none), (5, 14), "SPILLWAY_TEST_NOT_SET", "set it");
    let both = "url = \"http://h:1\"\ncredential = { value = \"a\", value_file = \"b\" }";
    check(&replica(both), (5, 14), "several", "exactly one");
    check(
        "[[replica]]\nname = \"b\"\nurl = \"http://h:1\"\nmodels = []\n",
        (4, 10),
        "no model",
        "models",
    );
    for lines in ["health.check = \"off\"", "health.check = \"grpc\"", "kind = \"torchserve\""] {
        let text = format!("[[replica]]\nname = \"b\"\nurl = \"http://h:1\"\n{lines}\n");
        check(&text, (2, 8), "can't be asked", "models =");
    }
    let url = "url = \"http://h:1\"";
    let price = "price = { prompt_per_million = 1, completion_per_million = 1 }";
    check(&replica(&format!("{url}\n{price}")), (5, 9), "a price is that", "role = \"overflow\"");
    check(&replica(&format!("{url}\noverflow = {{}}")), (5, 12), "caps", "role = \"overflow\"");
    let hosted = format!("{url}\nrole = \"overflow\"");
    check(&replica(&hosted), (2, 8), "has a price", "add price");
    let hosted = format!("{hosted}\n{price}");
    let priced = hosted.replace("price = { ", "price = { model = \"tiny\", ");
    check(&replica(&priced), (6, 19), "that of all its models", "remove model");
    let warmed = format!("{hosted}\nwarm_up = [\"x\"]");
    check(&replica(&warmed), (2, 8), "no client asked for", "remove deep and warm_up");
    let share = format!("{hosted}\noverflow = {{ share_percent_max = 0 }}");
    check(&replica(&share), (7, 34), "can't be 0", "from 1 to 100");
    let renamed = "[[replica]]\nname = \"b\"\nurl = \"http://h:1\"\nmodels = { tiny = \"x\" }\n";
    check(renamed, (4, 10), "by other names", "role = \"overflow\"");
    let versions =
        "[[replica]]\nname = \"b\"\nurl = \"http://h:1\"\nversions = { tiny = [\"1\"] }\n";
    check(versions, (4, 21), "does not serve \"tiny\"", "add the model");
}

#[test]
fn names_that_can_never_be_asked_for_are_told_with_line_column_and_remedy() {
    let long = format!("{}.test", "a".repeat(64));
    for (host, message) in [
        ("a..b", "empty label"),
        (".a", "empty label"),
        (&long, "64 bytes"),
        ("10.0.0.256", "no IPv4 address"),
        ("a*b", "the character '*'"),
    ] {
        let replica =
            |lines: String| format!("[[replica]]\nname = \"b\"\nmodels = [\"tiny\"]\n{lines}\n");
        let remedy = "labels of at most 63";
        check(&replica(format!("url = \"http://{host}:80\"")), (4, 7), message, remedy);
        let grpc = format!("url = \"http://h:1\"\ngrpc_url = \"http://{host}:80\"");
        check(&replica(grpc), (5, 12), message, remedy);
        let notice = format!("url = \"http://h:1\"\nnotice_url = \"http://{host}/x\"");
        check(&replica(notice), (5, 14), message, remedy);
        for (source, column) in
            [(format!("dns = \"{host}:80\""), 7), (format!("srv = \"{host}\""), 7)]
        {
            let text = format!(
                "[[discovery]]\nname = \"d\"\n{source}\n[discovery.replica]\nmodels = [\"m\"]\n"
            );
            check(&text, (3, column), message, remedy);
        }
    }
    for host in ["gpu_worker.stack_net", "a.", "xn--bcher-kva.example", "[::1]"] {
        let replica =
            format!("[[replica]]\nname = \"b\"\nmodels = [\"m\"]\nurl = \"http://{host}:1\"\n");
        parse(&format!("{LISTENER}{replica}")).expect("a config");
    }
}

#[test]
fn a_replica_needs_only_a_name_and_an_address() {
    let replica = "[[replica]]\nname = \"a\"\nurl = \"http://h:1\"\n";
    // The models of the replica are not known yet, so any model may be named.
    let names = "[[route]]\nname = \"r\"\nmodels = [\"huge\"]\n[aliases]\nshort = \"large\"\n";
    parse(&format!("{LISTENER}{replica}{names}")).expect("a config");
}

#[test]
fn bad_tls_files_are_told_with_their_line() {
    let certificates = Certificates::for_name("localhost");
    let listener = |certificate: &str, key: &str| {
        let line = format!("tls = {{ certificate = \"{certificate}\", key = \"{key}\" }}");
        parse(&format!("{LISTENER}{line}\n{REPLICA}")).expect_err(&line)
    };
    let (certificate, key) = (certificates.certificate_file(), certificates.key_file());
    let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
    let other = Certificates::for_name("localhost");
    for (error, part) in [
        (listener("nowhere.pem", &key), "nowhere.pem"),
        (listener(&key, &key), ""),
        (listener(&certificate, &certificate), "private key"),
        (listener(&certificate, &other.key_file().display().to_string()), "certificate and key"),
    ] {
        assert_eq!(error.position().map(|(line, _)| line), Some(3), "{error}");
        assert!(error.message.contains(part), "{error}");
        assert!(!error.remedy.is_empty(), "{error}");
    }
}

#[test]
fn bad_client_certificates_are_told_with_their_line_and_expired_ones_are_a_warning() {
    let certificates = Certificates::for_name("gateway");
    let other = Certificates::for_name("gateway");
    let replica = |certificate: &Path, key: &Path| {
        let (certificate, key) = (certificate.display(), key.display());
        let tls = format!("tls = {{ certificate = \"{certificate}\", key = \"{key}\" }}");
        let text = format!("[[replica]]\nname = \"b\"\nurl = \"https://h:1\"\n{tls}\n");
        parse(&format!("{LISTENER}{text}"))
    };
    let (certificate, key) = (certificates.certificate_file(), certificates.key_file());
    for (error, part, remedy) in [
        (replica(Path::new("nowhere.pem"), &key), "nowhere.pem", "path"),
        (replica(&certificate, Path::new("nowhere.pem")), "nowhere.pem", "path"),
        (replica(&key, &key), "no certificate", "certificate first"),
        (replica(&certificate, &certificate), "key of the client certificate", "private key"),
        (replica(&certificate, &other.key_file()), "client certificate and key", "made with"),
    ] {
        let error = error.expect_err(part);
        assert_eq!(error.position().map(|(line, _)| line), Some(6), "{error}");
        assert!(error.message.contains(part) && error.remedy.contains(remedy), "{error}");
    }
    let warned = |config: &Config| {
        let told = config.warnings.iter().map(ToString::to_string);
        told.filter(|told| told.contains("client certificate")).collect::<Vec<_>>()
    };
    let config = replica(&certificate, &key).expect("a config");
    assert_eq!(warned(&config), Vec::<String>::new());
    certificates.expire();
    let told = warned(&replica(&certificate, &key).expect("a config"));
    assert!(told.len() == 1 && told[0].contains("has expired"), "{told:?}");
    assert!(told[0].contains(":6:") && told[0].contains("renew it"), "{told:?}");
}

#[test]
fn what_would_only_fail_at_the_start_is_told_by_the_check() {
    let listener = |address: &str| format!("[[listener]]\naddress = \"{address}\"\n");
    let open = "[auth]\nmode = \"none\"\n";
    for (first, second) in [
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("0.0.0.0:8080", "127.0.0.1:8080"),
        ("[::1]:8080", "[::]:8080"),
    ] {
        let text = listener(first) + &listener(second) + open;
        check(&text, (4, 11), "taken by another listener", "address of its own");
    }
    let admin = listener("127.0.0.1:8080") + "[admin]\naddress = \"127.0.0.1:8080\"\n";
    check(&admin, (4, 11), "taken by another listener", "address of its own");
    for other in ["127.0.0.1:8081", "127.0.0.2:8080", "[::]:8080"] {
        let text = format!("{REPLICA}{}{}{open}", listener("127.0.0.1:8080"), listener(other));
        parse(&text).expect(other);
    }
    for (address, url) in [
        ("127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        ("0.0.0.0:8080", "http://localhost:8080"),
        ("[::]:80", "http://[::1]"),
    ] {
        let replica = format!("[[replica]]\nname = \"b\"\nmodels = [\"tiny\"]\nurl = \"{url}\"\n");
        let text = listener(address) + &replica + open;
        check(&text, (6, 7), "listener of this node itself", "model server");
    }
    check("[access_log]\nfile = \"/tmp\"\n", (2, 8), "is a folder", "name a file in it");
    let price = |model: &str| {
        format!(
            "[[price]]\nmodel = \"{model}\"\nprompt_per_million = 1\ncompletion_per_million = 1\n"
        )
    };
    check(&price("*"), (2, 9), "no model is called", "leave `model` out");
    let warned = |model: &str| {
        let config = parse(&format!("{LISTENER}{REPLICA}{}", price(model))).expect(model);
        config.warnings.iter().map(ToString::to_string).collect::<String>()
    };
    assert!(warned("tinny").contains("no replica has the model \"tinny\""), "{}", warned("tinny"));
    assert_eq!(warned("tiny"), "");
}

#[test]
fn a_config_without_what_it_needs_is_refused() {
    let error = parse(REPLICA).expect_err("no listener");
    assert!(
        error.message.contains("no listener") && error.remedy.contains("[[listener]]"),
        "{error}"
    );
    let line = "proxy_protocol = \"required\"\n";
    let error = parse(&format!("{LISTENER}{line}")).expect_err("nobody is trusted");
    assert!(error.remedy.contains("trusted_proxies"), "{error}");
    let error = Config::load(Path::new("/nowhere/file.toml")).expect_err("no file");
    assert!(error.to_string().contains("/nowhere/file.toml"), "{error}");
}

#[test]
fn the_environment_overrides_the_file() {
    let text = format!("{LISTENER}{REPLICA}[node]\nregion = \"file\"\n");
    let with = |pairs: &[(&str, &str)]| {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Config::parse(&text, Path::new("file.toml"), pairs)
    };
    let config = with(&[
        ("SPILLWAY__NODE__REGION", "sky"),
        ("SPILLWAY__LIMITS__CONNECTIONS_MAX", "7"),
        ("SPILLWAY__REPLICA__0__URL", "http://other:2"),
        ("SPILLWAY_NODE_REGION", "not an override"),
        ("HOME", "/root"),
    ]);
    let config = config.expect("a config");
    assert_eq!(config.gateway.region, "sky");
    assert_eq!(config.gateway.limits.connections_max, 7);
    assert_eq!(config.world.replicas[0].spec.host, "other");
    for (name, text) in [
        ("SPILLWAY__NODE__REGON", "sky"),
        ("SPILLWAY__LIMITS__CONNECTIONS_MAX", "many"),
        ("SPILLWAY__REPLICA__5__URL", "http://other:2"),
        ("SPILLWAY__", "x"),
    ] {
        let error = sole(with(&[(name, text)]).expect_err(name));
        assert!(!error.remedy.is_empty(), "{error}");
        // The variable is to blame, not the file.
        assert_eq!((error.place.variable.as_deref(), error.position()), (Some(name), None));
    }
}

/// Every key there is.
pub(crate) const EVERYTHING: &str = r#"
[node]
name = "n"
region = "r"
workers = 1
country = "DE"
drain_notice_ms = 1
drain_ms = 1
expose_routing = true
[admin]
address = "127.0.0.1:0"
token_file = "t"
names = ["n"]
tls = { certificate = "certificate.pem", key = "key.pem" }
[access_log]
requests = "all"
share_percent = 10.0
file = "access.log"
[traces]
endpoint = "https://collector"
share_percent = 10.0
headers_file = "t"
ca = "certificate.pem"

[limits]
connections_max = 1
connections_per_client_max = 1
memory_bytes_max = 1
header_bytes_max = 8192
body_bytes_max = 1
body_bytes_total_max = 1
idle_timeout_ms = 1
stall_timeout_ms = 1
[timeouts]
connect_ms = 1
first_byte_ms = 1
idle_ms = 1
total_ms = 1
keep_alive_ms = 1
[prefix]
index_bytes_max = 1048576
[retry]
attempts_max = 1
budget_percent = 1
[geo]
database = "city.mmdb"
unknown_clients = "no_rule"
[usage]
folder = "kept"
days_max = 1
[[price]]
model = "tiny"
prompt_per_million = 0.15
cached_per_million = 0.075
completion_per_million = 0.6
[[residency]]
clients = ["DE"]
regions = ["r"]
countries = ["DE"]
[health]
check = "off"
interval_ms = 1
timeout_ms = 1
fall = 1
eject_after = 1
eject_ms = 1
slow_ratio = 1.0
stall_ms = 1
slow_start_ms = 1
[standby]
queued = 1.0
p99_ms = 1
[classes]
h100 = 4
[mapping.mine]
queued = { metrics = ["q"], combine = "mean", scale = 1.0, ratio_to = ["t"], labels = ["l"] }
[aliases]
other = "tiny"
[[discovery]]
name = "d"
dns = "h:1"
resolver = "127.0.0.1:53"
[discovery.replica]
url = "http://"
models = ["tiny"]
[fallback]
big = ["tiny"]
[[split]]
model = "chat"
by = "random"
sticky_cookie = "arm"
[[split.arms]]
name = "a"
model = "tiny"
weight = 1
version = "1"
[cluster]
id = "c"
address = "127.0.0.1:0"
ca = "certificate.pem"
certificate = "certificate.pem"
key = "key.pem"
prefix_key = "key.pem"
advertise = "n:1"
data = "d"
join_token_file = "t"
revoked = "r"
silence_ms = 1
[[peer]]
name = "p"
region = "elsewhere"
address = "127.0.0.1:1"
[[region]]
name = "elsewhere"
weight_percent = 100
price_ms = 0.0
rtt_ms = 1
country = "FR"
addresses = ["203.0.113.1"]
latitude = 48.9
longitude = 2.4
client_networks = ["10.0.0.0/8"]
[dns]
listen = "127.0.0.1:0"
zone = "infer.example.com"
names = ["@"]
name_servers = ["ns1.example.net"]
ttl_s = 1
caa = ["0 issue \"ca.example.net\""]
hosts = {}
aliases = {}
https = true
answers_per_s = 1
[spill]
enabled = true
reserve_percent = 1
queue_max = 1
queue_ms = 1
tenant_room_percent = 1
[[listener]]
address = "127.0.0.1:0"
auth = "none"
share_port = false
proxy_protocol = "off"
trusted_proxies = []
tls = { certificate = "certificate.pem", key = "key.pem" }
[cors]
allowed_origins = ["https://chat.example"]

[auth]
mode = "keys"
[[key]]
id = "k"
salt = "00000000000000000000000000000000"
hash = "0000000000000000000000000000000000000000000000000000000000000000"
tenant = "t"
models = ["tiny"]
regions = ["local"]
priority = 1
expires = 2027-01-31T00:00:00Z
revoked = true
[[limit]]
name = "global"
requests_per_s = 900
concurrency = 64
[[limit]]
name = "model:small"
requests_per_min = 600
tokens_per_min = 60000
[[tenant]]
name = "t"
suspended = true
isolate_prompts = true
regions = ["r"]
countries = ["DE"]
budget_per_day = 10
budget_per_month = 99.5
[[replica]]
name = "a"
url = "https://h:1"
models = ["tiny"]
versions = {}
pool = "p"
weight = 1
protocol = "http2"
connections_max = 1
concurrency = "adaptive"
idle_ms = 1
kind = "vllm"
kv_events_port = 5557
grpc_url = "https://h:2"
notice_url = "http://h:1/notice"
warm_up = ["hello"]
standby = true
health = { check = "http", path = "/h", port = 1, service = "s" }
deep = { path = "/d", body = "1", expect = { contains = "x" }, gpu_memory_max = 0.9, interval_ms = 1 }
metrics = { scrape = true, path = "/m", port = 1, mapping = "mine", dcgm_port = 1 }
bucket = { rate_per_s = 1.0, burst = 1.0 }
tls = { ca = "ca.pem", server_name = "s", certificate = "certificate.pem", key = "key.pem" }
credential = { header = "h", prefix = "p", value = "v" }
[[replica]]
name = "o"
url = "https://h:1/v1"
models = ["tiny"]
role = "overflow"
class = "h100"
price = { prompt_per_million = 1, cached_per_million = 0.5, completion_per_million = 2 }
overflow = { after_ms = 1, share_percent_max = 1, budget_per_day = 1, budget_per_month = 9.5, country = "US" }
[[route]]
name = "r"
path_prefix = "/x"
replace_prefix = "/y"
protocol = "raw"
models = ["tiny"]
model = "tiny"
pool = "p"
policy = "consistent_hash"
hash_by = "client_ip"
session = { cookie = "c", idle_s = 1 }
regions = ["r"]
countries = ["DE"]
predicted_latency = { goal = "total" }
forward_authorization = true
overflow = true
allow_engine_fields = ["priority"]
queue_max = 1
queue_ms = 1
start_wait_ms = 1
slo_ms = 1
hedge = { after_ms = 1, budget_percent = 1 }
timeouts = { connect_ms = 1, first_byte_ms = 1, idle_ms = 1, total_ms = 1, keep_alive_ms = 1 }
[[route]]
name = "a"
path_prefix = "/a"
protocol = "openai"
inject_usage = true
continue_streams = true
"#;

#[test]
fn the_schema_has_every_key_that_is_read_and_no_other() {
    let certificates = Certificates::for_name("localhost");
    let path = certificates.folder().join("file.toml");
    std::fs::write(certificates.folder().join("t"), "").expect("a token file");
    Config::parse(EVERYTHING, &path, []).expect("every key exists");
    let schema = spillway_config::schema();
    let mut known = BTreeSet::new();
    collect(schema, schema, "", &mut known);
    assert!(known.len() > 200, "{}", known.len());
    for key in known.iter().filter(|key| key.contains('.')) {
        let (section, rest) = key.split_once('.').expect("a key of a section");
        let is_list = schema["properties"][section]["type"] == "array";
        let header = if is_list { format!("[[{section}]]") } else { format!("[{section}]") };
        // A moment is no value of any setting: the key is refused for its value, not for its name.
        let text = format!("{header}\n{rest} = 1979-05-27\n");
        let errors = Config::parse(&text, Path::new("file.toml"), []).expect_err(&text);
        assert!(!errors.to_string().contains("unknown key"), "{key}: {errors}");
    }
}

/// Every property below a schema, as `table.key`.
fn collect(root: &Value, schema: &Value, path: &str, known: &mut BTreeSet<String>) {
    if let Some(target) = schema["$ref"].as_str() {
        let target = target.strip_prefix('#').expect("a place in this schema");
        return collect(root, root.pointer(target).expect("a definition"), path, known);
    }
    for list in ["anyOf", "allOf", "oneOf"] {
        for part in schema[list].as_array().into_iter().flatten() {
            collect(root, part, path, known);
        }
    }
    if schema["items"].is_object() {
        collect(root, &schema["items"], path, known);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(root, property, &path, known);
        known.insert(path);
    }
}
