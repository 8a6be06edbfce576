//! What an OpenTelemetry collector gets, decoded by OpenTelemetry's own types; and one that is not there.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use super::*;
use crate::live;

/// Takes pushes until nobody wants any more.
fn receiver() -> (String, Receiver<(String, ExportMetricsServiceRequest)>) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", socket.local_addr().unwrap());
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for stream in socket.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert!(stream.read_line(&mut head).unwrap() > 0);
            }
            let length = head.to_lowercase().split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse();
            let mut body = vec![0; length.unwrap()];
            stream.read_exact(&mut body).unwrap();
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
            let request = ExportMetricsServiceRequest::decode(&body[..]).unwrap();
            if sender.send((head, request)).is_err() {
                return;
            }
        }
    });
    (address, receiver)
}

fn snapshot() -> Option<Arc<Snapshot>> {
    let mut all = Snapshot { started_ns: 5, at_ns: 9, host: "node7".to_owned(), hangs: 3, ..Snapshot::default() };
    let mut durations = crate::rollups::Durations::default();
    durations.add(3_000);
    let kind = live::Kind { seen: 11, timed: 1, total_ns: 3_000, durations, ..live::Kind::default() };
    all.others.kinds.insert("launch".into(), kind);
    Some(Arc::new(all))
}

fn soon() -> Duration {
    Duration::from_millis(20)
}

#[test]
fn pushes_hold_what_a_scrape_would() {
    let (address, received) = receiver();
    let push = Target::new(&address, soon()).unwrap().push_of(Arc::new(snapshot), |error| panic!("{error}")).unwrap();
    let (head, request) = received.recv().unwrap();
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("content-type: application/x-protobuf"), "{head}");
    let resource = &request.resource_metrics[0];
    let about = &resource.resource.as_ref().unwrap().attributes;
    let text = |key: &str| about.iter().find(|of| of.key == key).and_then(|of| of.value.clone()?.value);
    assert_eq!(text("host.name"), Some(any_value::Value::StringValue("node7".to_owned())));
    let metrics = &resource.scope_metrics[0].metrics;
    let data = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap().data.clone().unwrap();
    let metric::Data::Sum(hangs) = data("gputrace_hangs") else { panic!() };
    let point = &hangs.data_points[0];
    assert!(hangs.is_monotonic && hangs.aggregation_temporality == AggregationTemporality::Cumulative as i32);
    assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (5, 9));
    assert_eq!(point.value, Some(number_data_point::Value::AsDouble(3.0)));
    let metric::Data::Histogram(took) = data("gputrace_call_duration_seconds") else { panic!() };
    let point = &took.data_points[0];
    assert_eq!((point.count, point.sum, point.attributes[0].key.as_str()), (1, Some(3e-6), "class"));
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    let place = point.bucket_counts.iter().position(|count| *count == 1).unwrap();
    assert!(point.explicit_bounds[place - 1] < 3e-6 && 3e-6 < point.explicit_bounds[place]);
    let names: Vec<String> = families(&snapshot().unwrap())
        .into_iter()
        .filter(|f| !f.points.is_empty())
        .map(|f| f.name.into_owned())
        .collect();
    let told: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(told, names.iter().map(|name| name.strip_suffix("_total").unwrap_or(name)).collect::<Vec<_>>());
    received.recv().unwrap();
    drop(push);
}

#[test]
fn the_last_values_come_at_the_end() {
    let (address, received) = receiver();
    let target = Target::new(&format!("{address}/own/path?key=1"), Duration::from_secs(3_600)).unwrap();
    drop(target.push_of(Arc::new(snapshot), |error| panic!("{error}")).unwrap());
    assert!(received.recv().unwrap().0.starts_with("POST /own/path?key=1 "));
}

#[test]
fn who_does_not_listen_is_told_of_once_and_waited_for_no_longer_than_a_moment() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (sender, said) = channel();
    let url = format!("http://user:hush@{free}");
    let push = Target::new(&url, soon()).unwrap().push_of(Arc::new(snapshot), move |error| sender.send(error).unwrap());
    let push = push.unwrap();
    let error = said.recv().unwrap();
    assert!(error.contains("cannot be pushed") && !error.contains("hush"), "{error}");
    thread::sleep(soon() * 5);
    let began = Instant::now();
    drop(push);
    assert!(began.elapsed() < PATIENCE * 2);
    assert!(said.recv().is_err(), "it was said once");
}

#[test]
fn only_addresses_of_http_are_taken() {
    for wrong in ["", "localhost:4318", "ftp://x", "http://", "http:///v1/metrics"] {
        assert!(Target::new(wrong, soon()).is_err(), "{wrong}");
    }
    assert_eq!(Target::new("https://x:1/", soon()).unwrap().url, "https://x:1/v1/metrics");
}
