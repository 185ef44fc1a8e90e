//! Stream capture: work becomes nodes of a graph.

use crate::abi::pointers::{Addr, Handle, In, Out, Stream};
use crate::abi::records::EdgeData;
use crate::abi::status::*;
use crate::state::device::Owner;
use crate::state::driver::Driver;
use crate::state::work::{CAPTURE_MODE, Capture, Graph, Op};

const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

fn thread() -> i32 {
    // SAFETY: takes nothing and cannot fail. (glibc has a function for it from 2.30 on only.)
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

impl Driver {
    /// Returns the key of the stream if it is capturing.
    pub fn capture_of(&mut self, stream: Stream) -> Res<Option<Handle>> {
        if self.captures.is_empty() {
            return Ok(None);
        }
        let Some(key) = self.stream_key(stream)? else { return Ok(None) };
        let Some(capture) = self.streams.get(&key).and_then(|s| s.capture) else { return Ok(None) };
        match self.captures.get(&capture) {
            Some(capture) if capture.valid => Ok(Some(key)),
            Some(_) => Err(CAPTURE_INVALIDATED),
            None => Ok(None),
        }
    }

    /// Turns work into a node if the stream is capturing. Returns whether it did.
    pub fn record(&mut self, stream: Stream, op: Op) -> Res<bool> {
        match self.capture_of(stream)? {
            Some(key) => self.append(key, op).map(|()| true),
            None => Ok(false),
        }
    }

    fn append(&mut self, key: Handle, op: Op) -> Res {
        let stream = self.streams.get(&key).ok_or(INVALID_HANDLE)?;
        let (capture, tail) = (stream.capture.unwrap_or(0), stream.tail.clone());
        let graph = self.captures.get(&capture).ok_or(ILLEGAL_STATE)?.graph;
        let node = self.add_node(graph, op, &tail)?;
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.tail = vec![node];
        }
        Ok(())
    }

    pub fn capture_allocation(&mut self, key: Handle, bytes: u64, owner: Owner) -> Res<Addr> {
        let address = self.reserve_graph_memory(bytes, owner)?;
        self.append(key, Op::Alloc(address)).inspect_err(|_| self.release_graph_memory(address))?;
        Ok(address)
    }

    pub fn capture_free(&mut self, key: Handle, address: Addr) -> Res {
        // Documented: it must be a graph's allocation; adding the node checks it.
        self.append(key, Op::Free(address))
    }

    /// Drops or spoils the capture of a stream that ends: one that began in it can never end, one that it
    /// joined cannot succeed.
    pub fn drop_capture_of(&mut self, key: Handle, capture: u64) {
        self.invalidate(capture);
        let Some(left) = self.captures.remove(&capture) else { return };
        if left.origin != key {
            self.captures.insert(capture, left);
        } else if !left.into_existing {
            self.end_graph(left.graph);
        }
    }

    pub fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.valid = false;
        }
    }

    /// Refuses a call that no capture can hold, which spoils the stream's capture.
    pub fn refuse_if_capturing(&mut self, stream: Stream) -> Res {
        self.stream_owner(stream)?;
        let Some(key) = self.capture_of(stream)? else { return Ok(()) };
        if let Some(capture) = self.streams.get(&key).and_then(|s| s.capture) {
            self.invalidate(capture);
        }
        Err(CAPTURE_UNSUPPORTED)
    }

    /// Refuses a call on a whole device while there is a capture that this thread must respect.
    pub fn refuse_during_capture(&mut self) -> Res {
        if self.captures.is_empty() || CAPTURE_MODE.get() == RELAXED {
            return Ok(());
        }
        let mine = thread();
        let hit = |c: &Capture| c.mode == GLOBAL || c.thread == mine && c.mode == THREAD_LOCAL;
        let mut refused = false;
        for capture in self.captures.values_mut().filter(|c| hit(c)) {
            capture.valid = false;
            refused = true;
        }
        if refused { Err(CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Lets a stream that waits for an event of a capture take part in it.
    pub fn join_capture(&mut self, stream: Stream, capture: u64, nodes: Vec<Handle>) -> Res {
        let key = self.stream_key(stream)?.ok_or(CAPTURE_IMPLICIT)?;
        let Some(state) = self.streams.get_mut(&key) else { return Err(INVALID_HANDLE) };
        match state.capture {
            Some(own) if own != capture => {
                self.invalidate(own);
                self.invalidate(capture);
                return Err(CAPTURE_MERGE);
            }
            Some(_) => {}
            None => {
                state.capture = Some(capture);
                state.tail.clear();
            }
        }
        for node in nodes {
            if !state.tail.contains(&node) {
                state.tail.push(node);
            }
        }
        Ok(())
    }

    fn begin_capture(&mut self, stream: Stream, mode: i32, existing: Option<(Handle, Vec<Handle>)>) -> Res {
        if !(GLOBAL..=RELAXED).contains(&mode) {
            return Err(INVALID_VALUE);
        }
        let key = self.stream_key(stream)?.ok_or(CAPTURE_UNSUPPORTED)?;
        if self.streams.get(&key).ok_or(INVALID_HANDLE)?.capture.is_some() {
            return Err(ILLEGAL_STATE);
        }
        let into_existing = existing.is_some();
        let (graph, tail) = existing.unwrap_or_else(|| {
            let graph = self.new_handle();
            self.graphs.insert(graph, Graph::default());
            (graph, Vec::new())
        });
        let id = self.new_id();
        let capture = Capture { graph, origin: key, mode, thread: thread(), valid: true, into_existing };
        self.captures.insert(id, capture);
        if let Some(state) = self.streams.get_mut(&key) {
            (state.capture, state.tail) = (Some(id), tail);
        }
        Ok(())
    }

    fn update_dependencies(&mut self, stream: Stream, nodes: Vec<Handle>, flags: u32) -> Res {
        let key = self.capture_of(stream)?.ok_or(ILLEGAL_STATE)?;
        let state = self.streams.get_mut(&key).ok_or(INVALID_HANDLE)?;
        match flags {
            0 => state.tail.extend(nodes),
            1 => state.tail = nodes,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }

    fn end_capture(&mut self, stream: Stream) -> Res<Handle> {
        let key = self.stream_key(stream)?.ok_or(ILLEGAL_STATE)?;
        let id = self.streams.get(&key).and_then(|s| s.capture).ok_or(ILLEGAL_STATE)?;
        let capture = self.captures.get(&id).ok_or(ILLEGAL_STATE)?;
        if capture.origin != key {
            return Err(CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != thread() {
            return Err(CAPTURE_WRONG_THREAD);
        }
        let joined = self.streams.get(&key).map(|s| s.tail.clone()).unwrap_or_default();
        let graph = self.graphs.get(&capture.graph).ok_or(ILLEGAL_STATE)?;
        let loose = |node: &Handle| !joined.contains(node) && !graph.edges.iter().any(|e| e.0 == *node);
        let unjoined = self
            .streams
            .iter()
            .any(|(&other, s)| other != key && s.capture == Some(id) && s.tail.iter().any(loose));
        for state in self.streams.values_mut().filter(|s| s.capture == Some(id)) {
            state.capture = None;
            state.tail.clear();
        }
        let Some(capture) = self.captures.remove(&id) else { return Err(ILLEGAL_STATE) };
        if capture.valid && !unjoined {
            return Ok(capture.graph);
        }
        if !capture.into_existing {
            self.end_graph(capture.graph);
        }
        Err(if capture.valid { CAPTURE_UNJOINED } else { CAPTURE_INVALIDATED })
    }
}

/// Writes the capture's status (0 none, 1 active, 2 invalidated), number and graph, and what the next node
/// would depend on.
fn info(
    driver: &mut Driver,
    stream: Stream,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<Handle>,
    nodes: Out<*const Handle>,
    edges: Out<*const EdgeData>,
    count: Out<usize>,
) -> Res {
    driver.stream_owner(stream)?;
    let key = if driver.captures.is_empty() { None } else { driver.stream_key(stream)? };
    let state = key.and_then(|k| driver.streams.get(&k));
    let found = state.and_then(|s| Some((s, s.capture?, driver.captures.get(&s.capture?)?)));
    let Some((state, number, capture)) = found else { return status.put(0) };
    status.put(if capture.valid { 1 } else { 2 })?;
    if capture.valid {
        id.put_opt(number);
        graph.put_opt(capture.graph);
        nodes.put_opt(state.tail.as_ptr());
        edges.put_opt(std::ptr::null());
        count.put_opt(state.tail.len());
    }
    Ok(())
}

driver_api! {
    fn cuStreamBeginCapture_v2(driver; stream: Stream, mode: i32) [cuStreamBeginCapture_v2_ptsz] {
        driver.begin_capture(stream, mode, None)
    }

    fn cuStreamBeginCapture(driver; stream: Stream) [cuStreamBeginCapture_ptsz] {
        driver.begin_capture(stream, GLOBAL, None)
    }

    fn cuStreamBeginCaptureToGraph(driver; stream: Stream, graph: Handle, nodes: In<Handle>, _edges:
        In<EdgeData>, count: usize, mode: i32) [cuStreamBeginCaptureToGraph_ptsz] {
        if !driver.graphs.contains_key(&graph) {
            return Err(INVALID_VALUE);
        }
        driver.begin_capture(stream, mode, Some((graph, nodes.list(count)?)))
    }

    fn cuStreamEndCapture(driver; stream: Stream, out: Out<Handle>) [cuStreamEndCapture_ptsz] {
        out.put_opt(0);
        let graph = driver.end_capture(stream)?;
        out.put(graph)
    }

    fn cuStreamIsCapturing(driver; stream: Stream, status: Out<i32>) [cuStreamIsCapturing_ptsz] {
        info(driver, stream, status, Out::NONE, Out::NONE, Out::NONE, Out::NONE, Out::NONE)
    }

    fn cuStreamGetCaptureInfo(driver; stream: Stream, status: Out<i32>, id: Out<u64>)
        [cuStreamGetCaptureInfo_ptsz] {
        info(driver, stream, status, id, Out::NONE, Out::NONE, Out::NONE, Out::NONE)
    }

    fn cuStreamGetCaptureInfo_v2(driver; stream: Stream, status: Out<i32>, id: Out<u64>, graph:
        Out<Handle>, nodes: Out<*const Handle>, count: Out<usize>) [cuStreamGetCaptureInfo_v2_ptsz] {
        info(driver, stream, status, id, graph, nodes, Out::NONE, count)
    }

    fn cuStreamGetCaptureInfo_v3(driver; stream: Stream, status: Out<i32>, id: Out<u64>, graph:
        Out<Handle>, nodes: Out<*const Handle>, edges: Out<*const EdgeData>, count: Out<usize>)
        [cuStreamGetCaptureInfo_v3_ptsz] {
        info(driver, stream, status, id, graph, nodes, edges, count)
    }

    fn cuStreamUpdateCaptureDependencies_v2(driver; stream: Stream, nodes: In<Handle>, _edges:
        In<EdgeData>, count: usize, flags: u32) [cuStreamUpdateCaptureDependencies_v2_ptsz] {
        driver.update_dependencies(stream, nodes.list(count)?, flags)
    }

    fn cuStreamUpdateCaptureDependencies(driver; stream: Stream, nodes: In<Handle>, count: usize, flags:
        u32) [cuStreamUpdateCaptureDependencies_ptsz] {
        driver.update_dependencies(stream, nodes.list(count)?, flags)
    }

    fn cuThreadExchangeStreamCaptureMode(_driver; mode: Out<i32>) {
        let wanted = mode.get()?;
        if !(GLOBAL..=RELAXED).contains(&wanted) {
            return Err(INVALID_VALUE);
        }
        mode.put(CAPTURE_MODE.replace(wanted))
    }
}
