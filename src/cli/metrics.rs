//! Options of `record` about metrics for other programs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;

/// Where metrics are to be had, or sent.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct MetricsArgs {
    /// Serve what happens as metrics for Prometheus, at http://ADDR/metrics: a port, or address:port
    ///
    /// A port alone is one of the loopback interface; another address must be named. Port 0 is any that is free, and is told.
    /// The metrics tell command lines without what is recognised as a secret, and no names of kernels. Whoever reaches the port may read
    /// them. Example: --metrics 9464
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub(crate) metrics: Option<SocketAddr>,

    /// Take orders there as well, from who has the token that stands in this file: what gputrace start, stop, set and dump do
    ///
    /// By POST to /start, /stop, /set and /dump, with the header Authorization: Bearer TOKEN; on the loopback interface only. The file is
    /// its owner's alone, and the token has 16 characters at least. Example: curl -X POST -H "Authorization: Bearer $(cat token)"
    /// 'localhost:9464/start?for=10'
    #[arg(long, value_name = "FILE", requires = "metrics")]
    pub(crate) metrics_token: Option<PathBuf>,

    /// Push the same metrics to an OpenTelemetry collector, by OTLP over HTTP
    ///
    /// To its path /v1/metrics, unless another one is named. A push that fails is told once and harms nobody. Example: --otlp
    /// http://localhost:4318
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,

    /// What is said instead.
    #[cfg(not(feature = "otlp"))]
    #[command(flatten)]
    pub(crate) without_otlp: WithoutOtlp,

    /// How often that is done, in seconds
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "SECONDS", requires = "otlp", value_parser = super::record::parse_period, allow_negative_numbers = true)]
    pub(crate) otlp_every: Option<std::time::Duration>,
}

impl MetricsArgs {
    /// Whether anybody is to hear of them.
    pub(crate) fn are_told(&self) -> bool {
        #[cfg(feature = "otlp")]
        let pushed = self.otlp.is_some();
        #[cfg(not(feature = "otlp"))]
        let pushed = false;
        pushed || self.metrics.is_some()
    }
}

/// Where this program cannot do it: the words are known, and what they need is said.
#[cfg(not(feature = "otlp"))]
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct WithoutOtlp {
    #[arg(long, hide = true, value_name = "URL", value_parser = refuse_otlp)]
    otlp: Option<String>,

    #[arg(long, hide = true, value_name = "SECONDS", value_parser = refuse_otlp, allow_negative_numbers = true)]
    otlp_every: Option<String>,
}

#[cfg(not(feature = "otlp"))]
fn refuse_otlp(_: &str) -> Result<String, String> {
    Err("this gputrace was built without pushing metrics: cargo build --release --features otlp; --metrics serves them"
        .to_owned())
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let text = text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| {
        "expected a port such as 9464, or an address with a port such as 127.0.0.1:9464 or [::1]:0".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::parse_address;

    #[test]
    fn a_port_alone_is_of_the_loopback_interface() {
        let parsed = |text: &str| parse_address(text).map(|address| address.to_string()).ok();
        let known = [
            ("9464", "127.0.0.1:9464"),
            ("localhost:0", "127.0.0.1:0"),
            ("[::1]:0", "[::1]:0"),
            ("0.0.0.0:80", "0.0.0.0:80"),
        ];
        known.iter().for_each(|(text, address)| assert_eq!(parsed(text).as_deref(), Some(*address)));
        for wrong in ["", ":9464", "host:9464", "127.0.0.1", "70000", "-1", "::1:0:0x"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
