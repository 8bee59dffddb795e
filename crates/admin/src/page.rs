//! The page at `/`, what this server has, and the one at `/demo`, a market and this machine, live. Their files are in the program,
//! and the documents that they link to.
//!
//! Nothing of them comes from elsewhere, and nothing in them is inline: the policy below allows this origin and no more. Publications of
//! others are shown as text: scripts cannot even write HTML (`require-trusted-types-for`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, StatusCode, header};
use model::{Code, Refusal};

use crate::error::ApiError;

/// The content security policy of the pages. `connect-src` of this origin covers its WebSockets.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// A page, or a file that one consists of.
struct File {
    /// A page's own, or below `/page/`.
    path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
    /// Changes with the content: who has it already is told so.
    tag: String,
}

impl File {
    fn new(path: &'static str, content_type: &'static str, bytes: &'static [u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let tag = format!("\"{:016x}\"", hasher.finish());
        Self { path, content_type, bytes, tag }
    }
}

static PAGES: LazyLock<[File; 2]> = LazyLock::new(|| {
    [
        File::new("/", HTML, include_bytes!("page/index.html")),
        File::new("/demo", HTML, include_bytes!("page/demo.html")),
    ]
});

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    let document = |path, bytes| File::new(path, TEXT, bytes);
    vec![
        File::new("app.js", SCRIPT, include_bytes!("page/app.js")),
        File::new("board.js", SCRIPT, include_bytes!("page/board.js")),
        File::new("charts.js", SCRIPT, include_bytes!("page/charts.js")),
        File::new("checker.js", SCRIPT, include_bytes!("page/checker.js")),
        File::new("controls.js", SCRIPT, include_bytes!("page/controls.js")),
        File::new("demo.js", SCRIPT, include_bytes!("page/demo.js")),
        File::new("icon.svg", IMAGE, include_bytes!("page/icon.svg")),
        File::new("latency.js", SCRIPT, include_bytes!("page/latency.js")),
        File::new("link.js", SCRIPT, include_bytes!("page/link.js")),
        File::new("losses.js", SCRIPT, include_bytes!("page/losses.js")),
        File::new("machine.js", SCRIPT, include_bytes!("page/machine.js")),
        File::new("network.js", SCRIPT, include_bytes!("page/network.js")),
        File::new("outage.js", SCRIPT, include_bytes!("page/outage.js")),
        File::new("payload.js", SCRIPT, include_bytes!("page/payload.js")),
        File::new("reader.js", SCRIPT, include_bytes!("page/reader.js")),
        File::new("sparkline.js", SCRIPT, include_bytes!("page/sparkline.js")),
        File::new("style.css", STYLE, include_bytes!("page/style.css")),
        File::new("text.js", SCRIPT, include_bytes!("page/text.js")),
        File::new("theme.js", SCRIPT, include_bytes!("page/theme.js")),
        File::new("token.js", SCRIPT, include_bytes!("page/token.js")),
        File::new("topics.js", SCRIPT, include_bytes!("page/topics.js")),
        document("docs/configuration.md", include_bytes!("../../../docs/configuration.md")),
        document("docs/devices.md", include_bytes!("../../../docs/devices.md")),
        document("docs/guarantees.md", include_bytes!("../../../docs/guarantees.md")),
        document("docs/logs.md", include_bytes!("../../../docs/logs.md")),
        document("docs/protocol.md", include_bytes!("../../../docs/protocol.md")),
        document("docs/webhooks.md", include_bytes!("../../../docs/webhooks.md")),
        File::new("vendor/tidegate.js", SCRIPT, include_bytes!("page/vendor/tidegate.js")),
        File::new("vendor/uPlot.LICENSE", TEXT, include_bytes!("page/vendor/uPlot.LICENSE")),
        File::new(
            "vendor/uPlot.iife.min.js",
            SCRIPT,
            include_bytes!("page/vendor/uPlot.iife.min.js"),
        ),
        File::new("vendor/uPlot.min.css", STYLE, include_bytes!("page/vendor/uPlot.min.css")),
    ]
});

fn find(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}

/// The page at `/`: the topics of this server.
pub(crate) async fn index(headers: HeaderMap) -> Response {
    answer(&PAGES[0], &headers)
}

/// The market.
pub(crate) async fn demo(headers: HeaderMap) -> Response {
    answer(&PAGES[1], &headers)
}

/// For browsers that ask for it without having read a page.
pub(crate) async fn icon(headers: HeaderMap) -> Result<Response, ApiError> {
    answer_file("icon.svg", &headers)
}

/// A file that the pages consist of.
pub(crate) async fn file(
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    answer_file(&path, &headers)
}

fn answer_file(path: &str, headers: &HeaderMap) -> Result<Response, ApiError> {
    let Some(file) = find(path) else {
        let text =
            format!("cannot find `/page/{path}`: the page has no such file; it begins at `/`");
        return Err(ApiError(Refusal::new(Code::NotFound, text)));
    };
    Ok(answer(file, headers))
}

fn answer(file: &'static File, headers: &HeaderMap) -> Response {
    let fields = [
        (header::CONTENT_TYPE, file.content_type),
        // Kept, but asked about each time: after an update nothing old is mixed with what is new.
        (header::CACHE_CONTROL, "no-cache"),
        (header::ETAG, file.tag.as_str()),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    let known = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    if known.is_some_and(|tags| tags.split(',').any(|tag| tag.trim() == file.tag)) {
        return (StatusCode::NOT_MODIFIED, fields).into_response();
    }
    (fields, file.bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(file: &File) -> &'static str {
        std::str::from_utf8(file.bytes).expect("it is text")
    }

    /// The texts between `before` and the next quote, wherever `before` is.
    fn names<'t>(text: &'t str, before: &'t str) -> impl Iterator<Item = &'t str> {
        text.split(before).skip(1).filter_map(|rest| rest.split('"').next())
    }

    #[test]
    fn everything_that_the_pages_ask_for_is_there() {
        let mut count = 0;
        for page in PAGES.iter() {
            for name in names(text_of(page), "\"page/") {
                assert!(find(name).is_some(), "{name}");
                count += 1;
            }
        }
        for file in FILES.iter().filter(|file| file.content_type == SCRIPT) {
            let folder = if file.path.starts_with("vendor/") { "vendor/" } else { "" };
            for name in names(text_of(file), "from \"./") {
                assert!(
                    find(&format!("{folder}{name}")).is_some(),
                    "{name}, which {} imports",
                    file.path
                );
                count += 1;
            }
        }
        assert!(count > 20, "the page names its files: {count}");
    }

    #[test]
    fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
        let forbidden =
            ["<style", "style=", " onclick=", "src=\"http", "href=\"http", "javascript:"];
        for page in PAGES.iter().map(text_of) {
            for each in forbidden {
                assert!(!page.contains(each), "{each}");
            }
            assert!(
                names(page, "<script").all(|rest| !rest.starts_with('>')),
                "a script of its own file"
            );
        }
        assert!(!POLICY.contains("unsafe") && !POLICY.contains("http"), "{POLICY}");
    }

    #[test]
    fn who_has_a_file_already_is_told_so() {
        let tag = find("app.js").expect("it is one of the files").tag.clone();
        let mut headers = HeaderMap::new();
        let status =
            |headers: &HeaderMap| answer_file("app.js", headers).map(|it| it.status()).ok();
        assert_eq!(status(&headers), Some(StatusCode::OK));
        headers.insert(header::IF_NONE_MATCH, "\"other\"".parse().expect("a field"));
        assert_eq!(status(&headers), Some(StatusCode::OK));
        let tags = format!("\"other\", {tag}").parse().expect("a field");
        headers.insert(header::IF_NONE_MATCH, tags);
        assert_eq!(status(&headers), Some(StatusCode::NOT_MODIFIED));
        assert!(answer_file("no.js", &headers).is_err());
    }
}
