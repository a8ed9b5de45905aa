//! Config errors in names are reported with their place and a remedy.

use crate::config::check;

/// A split with these lines, its arms in the fourth line.
fn split(lines: &str, arms: &str) -> String {
    format!("[[split]]\nmodel = \"chat\"\n{lines}\narms = [{arms}]\n")
}

const ARM: &str = "{ name = \"a\", model = \"tiny\", weight = 1 }";

#[test]
fn faults_of_splits_are_told_with_line_column_and_remedy() {
    for by in ["", "header", "header:", "cookie:a b", "client_ip"] {
        let text = split(&format!("by = \"{by}\""), ARM);
        check(&text, (3, 6), "can't split by", "header:x-user");
    }
    let arm = |fields: &str| split("", &format!("{{ {fields} }}"));
    let no_weight = arm("name = \"a\", model = \"tiny\", weight = 0");
    check(&no_weight, (4, 8), "no arm has a weight", "above 0");
    check(&split("", ""), (4, 8), "no arm has a weight", "above 0");
    check(&arm("name = \"a\", model = \"huge\", weight = 1"), (4, 31), "\"huge\"", "tiny");
    check(&arm("name = \"a b\", model = \"tiny\", weight = 1"), (4, 18), "\"a b\"", "letters");
    check(&arm("name = \"\", model = \"tiny\", weight = 1"), (4, 18), "\"\"", "letters");
    check(&arm("name = \"a\", model = \"tiny\", weight = -1"), (4, 48), "can't be -1", "from 0 on");
    let step = "name = \"a\", model = \"tiny\", weight = 1, version = \"..\"";
    check(&arm(step), (4, 61), "can't be a version", "letters");
    let twice = split("", &format!("{ARM}, {ARM}"));
    check(&twice, (4, 62), "a second arm is called \"a\"", "own name");
    let many: Vec<String> = (0..33).map(|n| ARM.replace("\"a\"", &format!("\"a{n}\""))).collect();
    check(&split("", &many.join(", ")), (4, 8), "32 arms at most", "leave some out");
}

#[test]
fn arms_have_weights_in_percent_that_make_100_or_weights_against_each_other() {
    let arms = |weights: &[&str]| {
        let arm = |(at, weight): (usize, &&str)| {
            format!("{{ name = \"a{at}\", model = \"tiny\", {weight} }}")
        };
        split("", &weights.iter().enumerate().map(arm).collect::<Vec<_>>().join(", "))
    };
    let percents = arms(&["weight_percent = 90", "weight_percent = 5.5"]);
    check(&percents, (4, 8), "make 95.5 %", "which make 100");
    let mixed = arms(&["weight_percent = 90", "weight = 10"]);
    check(&mixed, (4, 8), "another kind of weight", "or each a weight");
    check(&arms(&["weight = 10", "version = \"1\""]), (4, 8), "no weight", "or each a weight");
    let both = arms(&["weight_percent = 100, weight = 1"]);
    check(&both, (4, 8), "another kind of weight", "or each a weight");
    for wrong in ["100.05", "-1", "1001"] {
        let text = arms(&[&format!("weight_percent = {wrong}")]);
        check(&text, (4, 57), "a percentage is a number from 0 to 1000", "correct the value");
    }
}

#[test]
fn a_split_stands_for_models_and_shares_its_name_with_no_other() {
    let own = split("", ARM);
    let nested = split("", &ARM.replace("tiny", "chat")).replacen("chat", "outer", 1);
    check(&format!("{own}{nested}"), (8, 31), "\"chat\" is a split itself", "replicas serve");
    // A split with a model's name is a split too, though its own arm may name the model.
    let shadow = split("", ARM).replacen("chat", "tiny", 1);
    check(&format!("{shadow}{own}"), (8, 31), "\"tiny\" is a split itself", "replicas serve");
    let to_itself = split("", &ARM.replace("tiny", "chat"));
    check(&to_itself, (4, 31), "no replica serves the model \"chat\"", "tiny");
    check(&format!("{own}{own}"), (6, 9), "a second split", "the first one");
    let alias = format!("{own}[aliases]\nchat = \"tiny\"\n");
    check(&alias, (2, 9), "is an alias too", "rename the split");
    let to_alias = format!("{}[aliases]\ngpt = \"tiny\"\n", split("", &ARM.replace("tiny", "gpt")));
    check(&to_alias, (4, 31), "no replica serves the model \"gpt\"", "tiny");
    check(&format!("{own}[aliases]\ngpt = \"other\"\n"), (6, 7), "\"other\"", "tiny");
    check(&own.replace("\"chat\"", "\"\""), (2, 9), "no name", "clients ask for");
}

#[test]
fn cookies_have_names_of_their_own() {
    let sticky = |cookie: &str| split(&format!("sticky_cookie = \"{cookie}\""), ARM);
    check(&sticky("a b"), (3, 17), "can't be called \"a b\"", "letters");
    let both = split("by = \"cookie:arm\"\nsticky_cookie = \"arm\"", ARM);
    check(&both, (4, 17), "goes by this cookie already", "another name");
    let two = format!("{}{}", sticky("arm"), sticky("arm").replace("chat", "talk"));
    check(&two, (7, 17), "the split chat remembers", "its own cookie");
    let route = "[[route]]\nname = \"r\"\nsession = { cookie = \"arm\" }\n";
    check(&format!("{}{route}", sticky("arm")), (7, 22), "the split chat", "different names");
    let age = "[[route]]\nname = \"r\"\nsession = { cookie = \"arm\", idle_s = 0 }\n";
    check(age, (3, 38), "can't be 0", "from 1 on, in s");
}

#[test]
fn faults_of_fallbacks_are_told_with_line_column_and_remedy() {
    let fallback = |lines: &str| format!("[fallback]\n{lines}\n");
    check(&fallback("big = [\"huge\"]"), (2, 8), "\"huge\"", "tiny");
    check(&fallback("big = []"), (2, 7), "has no fallback", "name a model");
    check(&fallback("tiny = [\"tiny\"]"), (2, 9), "a loop", "remove it");
    check(&fallback("big = [\"tiny\", \"tiny\"]"), (2, 16), "a loop", "remove it");
    let nine = ["\"tiny\""; 9].join(", ");
    check(&fallback(&format!("big = [{nine}]")), (2, 7), "8 fallbacks at most", "leave some out");
    let alias = format!("{}[aliases]\ngpt = \"tiny\"\n", fallback("gpt = [\"tiny\"]"));
    check(&alias, (2, 7), "\"gpt\" is an alias", "stands for");
    let of_split = format!("{}{}", fallback("chat = [\"tiny\"]"), split("", ARM));
    check(&of_split, (2, 8), "\"chat\" is a split", "its arms");
}

#[test]
fn faults_of_versions_are_told_with_line_column_and_remedy() {
    let replica = |versions: &str| {
        let fields = "name = \"b\"\nurl = \"http://h:1\"\nmodels = [\"net\"]";
        format!("[[replica]]\n{fields}\nversions = {{ {versions} }}\n")
    };
    check(&replica("tiny = [\"1\"]"), (5, 21), "does not serve \"tiny\"", "add the model");
    check(&replica("net = []"), (5, 20), "1 to 64 versions", "name its versions");
    check(&replica("net = [\"1\", \"1\"]"), (5, 26), "there twice", "once");
    for version in ["", ".", "a/b", "a@b", "1 2"] {
        let text = replica(&format!("net = [\"{version}\"]"));
        check(&text, (5, 21), "can't be a version", "letters");
    }
    let many: Vec<String> = (0..65).map(|version| format!("\"{version}\"")).collect();
    check(&replica(&format!("net = [{}]", many.join(", "))), (5, 20), "1 to 64", "name its");
    let arm = "{ name = \"a\", model = \"net\", weight = 1, version = \"2\" }";
    let unknown = format!("{}{}", replica("net = [\"1\"]"), split("", arm));
    check(&unknown, (9, 60), "no replica serves version \"2\" of net", "name one of: 1");
}

#[test]
fn faults_of_sessions_are_told_with_line_column_and_remedy() {
    let route = |session: &str| format!("[[route]]\nname = \"r\"\nsession = {{ {session} }}\n");
    check(&route(""), (3, 11), "by a cookie or by a header", "exactly one");
    let both = route("cookie = \"a\", header = \"b\"");
    check(&both, (3, 11), "by a cookie or by a header", "exactly one");
    check(&route("cookie = \"a b\""), (3, 22), "can't be called", "letters");
    check(&route("header = \"a b\""), (3, 22), "not a header name", "x-session-id");
    check(&route("header = \"a\", idle_s = 0"), (3, 36), "can't be 0", "from 1 on");
}
