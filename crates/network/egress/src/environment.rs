//! The variables that make common clients use the gateway and trust its authority. A convenience:
//! what keeps a sandbox in is that it has no other way out.

use std::collections::BTreeMap;

/// Variables that name a file with the certificates to trust.
const AUTHORITY: [&str; 9] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "DENO_CERT",
    "AWS_CA_BUNDLE",
];

/// `proxy` is host and port of the proxy as the sandbox sees it, `authority_file` the path there of
/// the task's certificate.
pub fn environment(proxy: &str, authority_file: &str) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut set = |name: &str, value: &str| {
        variables.insert(name.to_owned(), value.to_owned());
    };
    let url = format!("http://{proxy}");
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"]
    {
        set(name, &url);
    }
    // The sandbox's own loopback needs no proxy.
    for name in ["no_proxy", "NO_PROXY"] {
        set(name, "localhost,127.0.0.1,::1");
    }
    for name in AUTHORITY {
        set(name, authority_file);
    }
    set("NODE_USE_ENV_PROXY", "1");
    set("npm_config_proxy", &url);
    set("npm_config_https_proxy", &url);
    set("npm_config_cafile", authority_file);
    set("CARGO_HTTP_PROXY", &url);
    set("GIT_TERMINAL_PROMPT", "0");
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_clients_find_proxy_and_authority() {
        let variables = environment("127.0.0.1:3128", "/etc/ringwall/ca.pem");
        for name in ["https_proxy", "HTTPS_PROXY", "http_proxy", "ALL_PROXY"] {
            assert_eq!(variables[name], "http://127.0.0.1:3128");
        }
        for name in AUTHORITY {
            assert_eq!(variables[name], "/etc/ringwall/ca.pem");
        }
    }
}
