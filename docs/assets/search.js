// What is typed, and search in pages that are read from file://, where browsers allow neither fetch nor workers: the index is a script of its own,
// and the worker's script runs in a hidden frame.
__search.transform = function (query) { // words only: `--steps=20` is no syntax of the search
    return query.replace(/[^\p{L}\p{N}_]+/gu, " ").trim();
};
if (location.protocol === "file:") {
    __search.index = new Promise(function (resolve) {
        window.search_index_ready = resolve;
        var script = document.createElement("script");
        script.src = search_index_at;
        document.head.appendChild(script);
    });
    window.Worker = function (address) {
        var target = new EventTarget(), frame = document.createElement("iframe"), waiting = [], ready = false;
        var deliver = function (data) {
            frame.contentWindow.dispatchEvent(new MessageEvent("message", {data: data}));
        };
        window.search_worker_says = function (data) {
            target.dispatchEvent(new MessageEvent("message", {data: data}));
        };
        window.search_worker_ready = function () {
            ready = true;
            waiting.splice(0).forEach(deliver);
        };
        frame.hidden = true;
        frame.srcdoc = "<script>postMessage = function (m) { parent.search_worker_says(m); };<\/script><script src=\"" +
            new URL(address, location.href).href + "\"><\/script><script>parent.search_worker_ready();<\/script>";
        document.body.appendChild(frame);
        target.postMessage = function (data) {
            if (ready) deliver(data); else waiting.push(data);
        };
        target.terminate = function () { frame.remove(); };
        return target;
    };
}
