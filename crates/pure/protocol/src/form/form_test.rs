//! Shapes of forms, with the results of Starlette 1.10 on python-multipart 0.0.34, which engines on
//! FastAPI use.

use http::{HeaderMap, HeaderValue, header};
use proptest::prelude::*;

use super::*;

const USUAL: &str = "multipart/form-data; boundary=X";
/// First part, which names the model `good`.
const GOOD: &str = "--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ngood\r\n";

fn read(content_types: &[&str], body: &[u8]) -> Result<(Option<String>, Vec<String>), ErrorKind> {
    let mut headers = HeaderMap::new();
    for kind in content_types {
        headers.append(header::CONTENT_TYPE, HeaderValue::from_str(kind).unwrap());
    }
    match read_form(&headers, body) {
        Ok(form) => {
            let names = form.names.iter().map(ToString::to_string).collect();
            Ok((form.model.map(str::to_owned), names))
        }
        Err(error) => Err(error.kind),
    }
}

/// Returns a form of `GOOD` and a part with these headers and the value `evil`.
fn two(head: &str) -> String {
    format!("{GOOD}--X\r\n{head}\r\n\r\nevil\r\n--X--\r\n")
}

#[track_caller]
fn refused(shape: &str, content_types: &[&str], body: &str) {
    let found = read(content_types, body.as_bytes());
    assert_eq!(found, Err(ErrorKind::BadRequest), "{shape}");
}

#[test]
fn forms_of_usual_clients_are_read() {
    let file = "--X\r\ncontent-disposition: form-data; name=\"file\"; filename=\"model\"\r\n\
                content-type: audio/wav\r\n\r\nmodel\r\n\r\n--Xless\n--\r\n";
    // Form as .NET writes it, and with it OpenAI's library for .NET.
    let dotnet = "--a=b\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; \
                  name=model\r\n\r\ngood\r\n--a=b\r\nContent-Disposition: form-data; name=file; \
                  filename=a.mp3; filename*=utf-8''a.mp3\r\n\r\nz\r\n--a=b--\r\n";
    let okhttp = "--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\
                  Content-Transfer-Encoding: binary\r\nContent-Type: text/plain\r\n\
                  Content-Length: 4\r\n\r\ngood\r\n--X--";
    let umlaut = format!(
        "--X\r\nContent-Disposition: form-data; name=\"image[]\"; filename=\"über; 1.png\"\r\n\r\n\
         \u{0}\r\n{GOOD}--X--\r\n"
    );
    let file = file.replace("--Xless", "-Xless") + GOOD + "--X--\r\n";
    for (shape, kind, body, names) in [
        ("alone", USUAL, &*format!("{GOOD}--X--\r\n"), &["model"][..]),
        ("behind a file", USUAL, &file, &["file", "model"]),
        (".NET", "multipart/form-data; boundary=\"a=b\"", dotnet, &["model", "file"]),
        ("OkHttp", USUAL, okhttp, &["model"]),
        (
            "UTF-8",
            "Multipart/Form-Data; charset=UTF-8; boundary=\"X\"",
            &umlaut,
            &["image[]", "model"],
        ),
    ] {
        let names = names.iter().map(ToString::to_string).collect();
        assert_eq!(read(&[kind], body.as_bytes()), Ok((Some("good".into()), names)), "{shape}");
    }
    let none = "--X\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\nb\r\n--X--\r\n";
    assert_eq!(read(&[USUAL], none.as_bytes()), Ok((None, vec!["a".into()])));
    assert_eq!(read(&[USUAL], b"--X--\r\n"), Ok((None, Vec::new())));
}

#[test]
fn names_of_parts_and_files_are_read_as_libraries_write_them() {
    for (head, name) in [
        (&br#"form-data;name="file";filename="a.wav""#[..], "file"),
        (br#"form-data; filename="a.wav"; name="file""#, "file"),
        // Go, and others that follow RFC 9110.
        (br#"form-data; name="file"; filename="my \"best\" take.wav""#, "file"),
        (br#"form-data; name="file"; filename="ends with \\""#, "file"),
        (br#"form-data; name="file"; filename="C:\rec\a.wav""#, "file"),
        (br#"form-data; filename="C:\rec\a.wav"; name="file""#, "file"),
        (br#"form-data; name="file"; filename="take 1; a=b.wav""#, "file"),
        (br#"form-data; name="file"; filename="model""#, "file"),
        (b"form-data; name=file; filename=it's~50%+1.wav", "file"),
        (b"form-data; name=\"file\"; filename*=utf-8''%C3%BCber.wav", "file"),
        (b"form-data; name=\"file\"; filename*=utf-8''a; filename=\"a\"", "file"),
        ("form-data; name=\"file\"; filename=\"\u{5929}.wav\"".as_bytes(), "file"),
        (b"form-data; name=\"file\"; filename=\"caf\xe9.wav\"", "file"),
        (b"form-data; name=\"file\"; filename=\"a\"; size=12", "file"),
        (b"form-data; name=\"my note\"", "my note"),
        ("form-data; name=\"notiz\u{fc}\"".as_bytes(), "notiz\u{fc}"),
        (b"form-data; name=\"timestamp_granularities[]\"", "timestamp_granularities[]"),
        (b"form-data; name=\"models\"", "models"),
    ] {
        let head = [b"--X\r\nContent-Disposition: ", head, b"\r\n\r\nz\r\n"].concat();
        let body = [GOOD.as_bytes(), &head, b"--X--\r\n"].concat();
        let shape = String::from_utf8_lossy(&head).into_owned();
        let names = vec!["model".to_owned(), name.to_owned()];
        assert_eq!(read(&[USUAL], &body), Ok((Some("good".into()), names)), "{shape}");
    }
    // A file that servers may decode or not is no second model.
    let base64 =
        two("Content-Disposition: form-data; name=\"x\"\r\nContent-Transfer-Encoding: base64");
    assert_eq!(read(&[USUAL], base64.as_bytes()).map(|form| form.0), Ok(Some("good".into())));
}

#[test]
fn a_second_model_is_refused_in_every_spelling() {
    // The comment behind each shape is the model that Starlette takes, or another result.
    for head in [
        r#"Content-Disposition: form-data; name="model""#, // evil
        r#"Content-Disposition: form-data; name=model"#,   // evil
        r#"Content-Disposition: form-data; name="x"; name="model""#, // evil
        r#"Content-Disposition: form-data; name="model"; name="x""#, // good
        r#"Content-Disposition: form-data; NAME="model""#, // evil
        r#"Content-Disposition: form-data; name = "model""#, // evil
        r#"Content-Disposition: form-data;name="model""#,  // evil
        r#"Content-Disposition: form-data;  name="model""#, // evil
        "Content-Disposition: form-data;\tname=\"model\"", // evil
        r#"Content-Disposition: form-data; name="model";"#, // evil
        r#"Content-Disposition: form-data; name="model"x"#, // good
        r#"Content-Disposition: Form-Data; name="model""#, // evil
        r#"Content-Disposition: attachment; name="model""#, // evil
        "Content-Disposition: form-data; name*=utf-8''model", // 400
        r#"Content-Disposition: form-data; name*0="mo"; name*1="del""#, // 400
        "Content-Disposition: form-data; name='model'",    // good
        r#"Content-Disposition: form-data; name="mo\del""#, // good
        r#"Content-Disposition: form-data; name="mode%6c""#, // good
        r#"Content-Disposition: form-data; name="MODEL""#, // good
        r#"Content-Disposition: form-data; name="model[]""#, // good
        r#"Content-Disposition: form-data; name=" model""#, // good
        r#"Content-Disposition: form-data; name="""#,      // good
        "Content-Disposition: form-data; name=\"x\"\r\nContent-Disposition: form-data; name=\"model\"", // evil
        "Content-Disposition: form-data;\r\n name=\"model\"", // 400
        "Content-Disposition : form-data; name=\"model\"",    // 400
        "Content-Disposition: form-data; name=\"model\"\r\nContent-Disposition: form-data; name=\"x\"",
        "Content-Disposition: form-data; name=\"x\"\r\nContent-Type: a/b\r\nContent-Type: text/plain",
        "Content-Disposition: form-data; name=\"x\"\r\nX-Y: z\nContent-Disposition: form-data; name=\"model\"",
        "Content-Disposition: form-data; name=\"x\"\r\nX-Y: z\rw",
        "Content-Disposition: form-data; name=\"y\"\n\nz\nContent-Disposition: form-data; name=\"model\"", // 400
        r#"Content-Disposition: form-data; name="model"; filename="f""#, // a file
        r#"Content-Disposition: form-data; name="model"; filename="""#,  // a file
        r#"Content-Disposition: form-data; filename="f"; name="model""#, // a file
        "Content-Disposition: form-data; name=\"model\"; filename*=utf-8''f", // evil
        r#"Content-Disposition: form-data; name="x"; filename="a\"; name="model""#, // good
        r#"Content-Disposition: form-data; name="x"; filename="a; name=model; b""#, // good
        r#"Content-Disposition: form-data; name="x"; filename="a"; filename="b""#, // good
        r#"Content-Disposition: form-data; name="x"; size=1; size=2"#,   // good
        r#"Content-Disposition: form-data; name="x"; filename="a;  NAME =model""#, // good
        r#"Content-Disposition: form-data; name="x"; filename="a; name*=utf-8''model""#, // good
        r#"Content-Disposition: form-data; filename="model"; name="x""#, // good
        r#"Content-Disposition: form-data; filename="model[]"; name="x""#, // good
        r#"Content-Disposition: form-data; filename="a\"; name="x""#,    // 400
        r#"Content-Disposition: form-data; filename="a\\"; name="x""#,   // good
        r#"Content-Disposition: form-data; filename="a\""; name="x""#,   // good
        r#"Content-Disposition: form-data; name="x"; filename="C:\dir\""#, // good
        r#"Content-Disposition: form-data; name="x"; xname="model""#,    // good
        r#"Content-Disposition: form-data; name="x"; filename*0="a""#,   // good
        r#"Content-Disposition: form-data; name="model "#,               // 400
        r#"Content-Disposition: form-data; name="model ""#,              // good
        "Content-Disposition: form-data; name=\"mo\u{200b}del\"",        // good
        "Content-Disposition: form-data; name=\"model\u{feff}\"",        // good
        "Content-Type: text/plain",                                      // 400
        "Content-Disposition: form-data; name=\"x\"\r\nContent-Type: multipart/mixed; boundary=Y", // good
        "Content-Disposition: form-data; name=\"x\"\r\nContent-Length: 3", // good
        "Content-Disposition: form-data; name=\"_charset_\"",              // good
    ] {
        refused(head, &[USUAL], &two(head));
    }
    let glued = GOOD.replace("--X\r\n", "--Xab") + "--X--\r\n";
    refused("a part on the line of its boundary", &[USUAL], &glued);
    refused("no headers", &[USUAL], &format!("{GOOD}--X\r\n\r\nevil\r\n--X--\r\n"));
}

#[test]
fn a_model_that_servers_may_read_in_two_ways_is_refused() {
    for (head, value) in [
        ("; filename=\"f\"", "evil"),
        ("\r\nContent-Type: text/plain; charset=utf-16", "e\0"),
        ("\r\nContent-Type: multipart/mixed", "evil"),
        ("\r\nContent-Transfer-Encoding: quoted-printable", "evil"),
        ("\r\nContent-Transfer-Encoding: base64", "evil"),
        ("", "evil\n"),
        ("", &"e".repeat(1025)),
    ] {
        let head = format!("Content-Disposition: form-data; name=\"model\"{head}");
        refused(&head, &[USUAL], &format!("--X\r\n{head}\r\n\r\n{value}\r\n--X--\r\n"));
    }
    let latin1 = "multipart/form-data; boundary=X; charset=ISO-8859-1";
    refused("not ASCII", &[latin1], &(GOOD.replace("good", "\u{fc}ber") + "--X--\r\n"));
    let charset = "--X\r\nContent-Disposition: form-data; name=\"_charset_\"\r\n\r\n";
    let form = |charset_name: &str, model: &str| {
        format!("{}{charset}{charset_name}\r\n--X--\r\n", GOOD.replace("good", model))
    };
    refused("not ASCII", &[USUAL], &form("iso-8859-1", "\u{fc}ber"));
    refused("not like ASCII", &[USUAL], &form("utf-16", "good"));
    assert!(read(&[USUAL], form("iso-8859-1", "good").as_bytes()).is_ok());
    assert!(read(&[USUAL], form("utf-8", "\u{fc}ber").as_bytes()).is_ok());
}

#[test]
fn a_model_loses_its_content_type_and_all_else_stays() {
    let disposition = "Content-Disposition: form-data; name=\"model\"";
    let form = |head: &str| {
        let file =
            "Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\nContent-Type: x/y";
        format!("--X\r\n{head}\r\n\r\ngood\r\n--X\r\n{file}\r\n\r\nz\r\n--X--\r\n")
    };
    for (head, is_plain) in [
        ("", true),
        ("\r\nContent-Transfer-Encoding: 8bit\r\nContent-Length: 4", true),
        // A file for Formidable.
        ("\r\nContent-Type: text/plain; charset=UTF-8", false),
        // Default of Apache HttpClient.
        (
            "\r\nContent-Type: text/plain; charset=ISO-8859-1\r\nContent-Transfer-Encoding: 8bit",
            false,
        ),
        ("\r\nContent-Type: text/plain; charset=utf-7", false),
        ("\r\ncontent-type: application/json", false),
        // A file for Busboy.
        ("\r\nContent-Type: application/octet-stream", false),
    ] {
        let body = Bytes::from(form(&format!("{disposition}{head}")));
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(USUAL));
        let read = read_form(&headers, &body).unwrap();
        assert_eq!(read.model, Some("good"), "{head}");
        let sent: Vec<u8> = read.for_servers(&body).iter().flatten().copied().collect();
        let expected = if is_plain { body } else { Bytes::from(form(disposition)) };
        assert_eq!(sent, expected, "{head}");
    }
}

#[test]
fn what_servers_skip_around_the_parts_is_accepted() {
    for (shape, body) in [
        ("empty line before", format!("\r\n{GOOD}--X--\r\n")),
        ("preamble", format!("This is MIME.\r\n\r\n{GOOD}--X--\r\n")),
        ("empty line behind", format!("{GOOD}--X--\r\n\r\n")),
        ("epilogue", format!("{GOOD}--X--\r\nThat was all.\n")),
    ] {
        let found = read(&[USUAL], body.as_bytes());
        assert_eq!(found, Ok((Some("good".into()), vec!["model".into()])), "{shape}");
    }
}

#[test]
fn boundaries_that_servers_may_find_elsewhere_are_refused() {
    let part = "--X\r\nContent-Disposition: form-data; name=\"y\"\r\n\r\n";
    for (shape, body) in [
        ("a line feed before the first boundary", format!("pre\n{GOOD}--X--\r\n")),
        ("a boundary in the preamble", format!("a--X\r\n{GOOD}--X--\r\n")),
        ("a form behind the form", format!("{GOOD}--X--\r\n{GOOD}--X--\r\n")),
        ("a boundary behind the form", format!("{GOOD}--X--\r\n --X--\r\n")),
        ("text on the line of the end", format!("{GOOD}--X--x\r\n")),
        ("a line feed at the end", format!("{GOOD}--X--\n")),
        ("no end", GOOD.to_owned()),
        ("line feeds alone", format!("{GOOD}--X--\r\n").replace("\r\n", "\n")),
        ("a line feed before a boundary", format!("{part}v\n{GOOD}--X--\r\n")),
        ("a line feed behind a boundary", format!("{GOOD}--X\n{}--X--\r\n", &part[5..])),
        ("spaces behind a boundary", format!("{}--X--\r\n", GOOD.replace("--X\r", "--X  \r"))),
        ("a longer boundary", format!("{part}v\r\n--Xtra\r\n{GOOD}--X--\r\n")),
        ("an empty part", format!("--X\r\n{GOOD}--X--\r\n")),
        ("nothing", String::new()),
        ("garbage", "garbage".to_owned()),
        ("many parts", format!("{part}v\r\n").repeat(1001) + "--X--\r\n"),
        ("long headers", format!("--X\r\nA: {}\r\n{}", "b".repeat(9000), &GOOD[5..]) + "--X--\r\n"),
    ] {
        refused(shape, &[USUAL], &body);
    }
}

#[test]
fn a_content_type_that_may_be_read_in_two_ways_is_refused() {
    let body = format!("{GOOD}--X--\r\n");
    for kind in [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=X; boundary=Y",
        "multipart/form-data; boundary=Y; boundary=X",
        "multipart/form-data; Boundary=X",
        "multipart/form-data; boundary*=utf-8''X",
        "multipart/form-data; boundary=\"\\X\"",
        "multipart/form-data; boundary=\"X",
        "multipart/form-data; boundary=\"X\"Y",
        "multipart/form-data; boundary='X'",
        "multipart/form-data; boundary=X Y",
        "multipart/form-data; boundary = X",
        "multipart/form-data; boundary=X; charset=utf-7",
        "multipart/form-data; boundary=X; charset=utf-16",
        "multipart/form-data; boundary=X; charset=utf-8; charset=utf-7",
        "multipart/form-data; boundary=X; type=\"boundary=Y\"",
        "multipart/form-data; xboundary=Y; boundary=X",
        "multipart/form-data; boundary=X; Charset=utf-8",
        "multipart/form-data; boundary=X;;",
        "multipart/form-data, multipart/form-data; boundary=X",
    ] {
        let found = read(&[kind], body.as_bytes());
        let is_other = kind.contains(',');
        let expected =
            if is_other { ErrorKind::UnsupportedMediaType } else { ErrorKind::BadRequest };
        assert_eq!(found, Err(expected), "{kind}");
    }
    for kind in [
        "multipart/form-data;boundary=X",
        "multipart/form-data; boundary=X;",
        "multipart/form-data; boundary=X ; charset=us-ascii",
        "multipart/form-data; charset=ISO-8859-15; boundary=X",
        "multipart/form-data; boundary=X; charset=\"windows-1252\"",
        "multipart/form-data; boundary=X; type=y",
    ] {
        let expected = Ok((Some("good".into()), vec!["model".into()]));
        assert_eq!(read(&[kind], body.as_bytes()), expected, "{kind}");
    }
    refused("said twice", &[USUAL, "multipart/form-data; boundary=Y"], &body);
    for kind in [&[][..], &["application/json"], &["multipart/mixed; boundary=X"]] {
        assert_eq!(read(kind, body.as_bytes()), Err(ErrorKind::UnsupportedMediaType));
    }
}

proptest! {
    #[test]
    fn what_is_read_is_written_once_in_the_usual_spelling(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "--X", "\r\n", "\n", "--", "; ", "name=", "\"", "model", "filename=", "Content-Disposition: ",
            "form-data", "evil", ":", "\\", "*", "NAME",
        ]), 0..24),
    ) {
        let body = format!("{GOOD}{}\r\n--X--\r\n", pieces.concat());
        if let Ok((model, names)) = read(&[USUAL], body.as_bytes()) {
            prop_assert_eq!(model.as_deref(), Some("good"));
            prop_assert_eq!(names.iter().filter(|name| *name == "model").count(), 1);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(kind in "[ -~]{0,60}", body in prop::collection::vec(any::<u8>(), 0..80)) {
        drop(read(&[&format!("multipart/form-data;{kind}")], &body));
        drop(read(&[USUAL], &body));
    }
}
