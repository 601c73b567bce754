//! URLs, as far as a client needs them: whether a host may be reached is for others to say.

use std::fmt;

use ringwall_tool_sdk::Failure;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    /// `http` or `https`.
    pub(crate) scheme: String,
    pub(crate) authority: String,
    /// With the query, without a fragment.
    pub(crate) path: String,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Url, Failure> {
        let wrong = || Failure::bad_input(format_args!("{text:?} is no http or https URL"));
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let scheme = scheme.to_ascii_lowercase();
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if !matches!(scheme.as_str(), "http" | "https") || authority.is_empty() {
            return Err(wrong());
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Url { scheme, authority: authority.to_owned(), path })
    }

    /// What a `Location` means here.
    pub(crate) fn join(&self, location: &str) -> Result<Url, Failure> {
        if location.contains("://") {
            return Url::parse(location);
        }
        if let Some(rest) = location.strip_prefix("//") {
            return Url::parse(&format!("{}://{rest}", self.scheme));
        }
        let location = location.split('#').next().unwrap_or_default();
        let path = if location.starts_with('/') {
            location.to_owned()
        } else {
            let own = self.path.split('?').next().unwrap_or_default();
            let folder = own.rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{folder}/{location}")
        };
        Ok(Url { path, ..self.clone() })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_where_redirects_lead() {
        let url = Url::parse("HTTPS://api.example.com:8443/v1/list?page=2#top").unwrap();
        assert_eq!(url.to_string(), "https://api.example.com:8443/v1/list?page=2");
        assert_eq!(Url::parse("http://a.example.com").unwrap().path, "/");
        assert_eq!(Url::parse("http://a.example.com?x").unwrap().path, "/?x");
        for (location, there) in [
            ("/other", "https://api.example.com:8443/other"),
            ("item", "https://api.example.com:8443/v1/item"),
            ("//b.example.com/x", "https://b.example.com/x"),
            ("http://c.example.com/", "http://c.example.com/"),
        ] {
            assert_eq!(url.join(location).unwrap().to_string(), there);
        }
        for wrong in ["", "api.example.com", "ftp://a.example.com/", "https:///path"] {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
    }
}
