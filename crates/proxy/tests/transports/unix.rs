//! Unix sockets towards clients and towards backends.

use crate::speak::{ask, expect, proxy, stop, unix_client};
use std::io::{Read, Write};
use std::net::Shutdown;
use testkit::{Client, Server};

#[test]
fn both_sides_speak_over_unix_sockets() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let (near, far) = (folder.path().join("near"), folder.path().join("far"));
    let text = |path: &std::path::Path| format!("unix:{}", path.display());
    // The second is the first one's backend, so that bytes pass a unix socket on both of its sides.
    let behind = proxy(&[text(&far)], &[server.address().to_string()], |_| ());
    let before = proxy(&[text(&near), "127.0.0.1:0".into(), "127.0.0.1:0".into()], &[text(&far)], |_| ());
    assert_eq!(before.listening[0].to_string(), text(&near));

    let mut client = unix_client(&near);
    ask(&mut client, "set k 5 0 3\r\nabc\r\nget k\r\n", "STORED\r\nVALUE k 5 3\r\nabc\r\nEND\r\n");
    let large = vec![b'x'; 900_000];
    let mut set = format!("set large 0 0 {}\r\n", large.len()).into_bytes();
    set.extend_from_slice(&large);
    set.extend_from_slice(b"\r\n");
    ask(&mut client, &set, "STORED\r\n");
    let mut value = format!("VALUE large 0 {}\r\n", large.len()).into_bytes();
    value.extend_from_slice(&large);
    value.extend_from_slice(b"\r\nEND\r\n");
    ask(&mut client, "get large\r\n", &value);

    // The same through each other address.
    for address in &before.listening[1..] {
        let socket = address.host_port().and_then(net::HostPort::number).expect("a TCP address");
        Client::connect(socket).ask("get k\r\n", "VALUE k 5 3\r\nabc\r\nEND\r\n");
    }

    // Half-closed with requests in flight, as over TCP: all are answered, then it ends.
    client.write_all(b"get k\r\nget nothing\r\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    expect(&mut client, "VALUE k 5 3\r\nabc\r\nEND\r\nEND\r\n");
    assert_eq!(client.read(&mut [0]).unwrap(), 0);

    stop(before);
    stop(behind);
    assert!(!near.exists() && !far.exists(), "the files go with the sockets");
}

#[test]
fn a_backend_whose_socket_file_is_missing_is_down_and_comes_up_later() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let far = folder.path().join("far");
    let address = format!("unix:{}", far.display());
    let before = proxy(&["127.0.0.1:0".into()], std::slice::from_ref(&address), |_| ());
    let mut client = Client::connect(before.address().unwrap());
    client.send("get k\r\n");
    let line = client.line();
    assert!(line.starts_with("SERVER_ERROR") || line == "END\r\n", "{line}");
    client.send("set k 0 0 1\r\n1\r\n");
    let line = client.line();
    assert!(line.starts_with("SERVER_ERROR") && line.contains(&address), "it names the backend: {line}");
    let behind = proxy(&[address], &[server.address().to_string()], |_| ());
    for attempt in 0.. {
        client.send("set k 0 0 1\r\n1\r\n");
        if client.line() == "STORED\r\n" {
            break;
        }
        assert!(attempt < 200, "it never came up");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    stop(before);
    stop(behind);
}

#[test]
fn the_file_of_an_address_that_a_reload_drops_is_removed() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| format!("unix:{}", path(name).display());
    let config = |listen: &[&str]| {
        let mut config = proxy::Config::new(&text(listen[0]), &[server.address().to_string()]);
        config.listen = listen.iter().map(|name| text(name).into()).collect();
        config.loops = 1;
        config
    };
    let mut running = proxy::start(config(&["kept", "dropped"]), clock::Clock::monotonic()).unwrap();
    let [mut client, mut kept] = ["dropped", "kept"].map(|name| unix_client(&path(name)));
    [&mut client, &mut kept].into_iter().for_each(|client| ask(client, "get k\r\n", "END\r\n"));
    let reload = |running: &mut proxy::Running, listen: &[&str]| {
        let new = running.reload(config(listen)).unwrap();
        assert_eq!(new.warnings, Vec::<String>::new());
        let mut old = std::mem::replace(running, new);
        old.wait_for_clients(|| false);
        stop(old);
    };
    reload(&mut running, &["kept", "new"]);
    assert!(path("kept").exists() && path("new").exists() && !path("dropped").exists());
    // The clients of the dropped address are closed, and the others stay.
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    ask(&mut kept, "get k\r\n", "END\r\n");
    ask(&mut unix_client(&path("kept")), "get k\r\n", "END\r\n");
    // A file that another process has put there stays.
    std::fs::remove_file(path("new")).unwrap();
    let other = std::os::unix::net::UnixListener::bind(path("new")).unwrap();
    reload(&mut running, &["kept"]);
    assert!(path("kept").exists() && path("new").exists());
    drop(other);
    stop(running);
    assert!(!path("kept").exists());
}
