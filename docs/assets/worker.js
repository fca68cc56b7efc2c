// Search in a site that is opened as files: browsers refuse workers there, so a hidden frame runs the script of the worker.
if (location.protocol === "file:")
  window.Worker = class {
    constructor(address) {
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.frame && this.onmessage?.({ data });
      const script = inside.document.createElement("script");
      script.src = new URL(address, document.baseURI);
      script.onload = () => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      script.onerror = (event) => this.onerror?.(event);
      inside.document.body.append(script);
    }
    postMessage(data) {
      if (!this.ready) this.waiting.push(data);
      else setTimeout(() => this.frame?.contentWindow.onmessage({ data }));
    }
    terminate() {
      this.frame?.remove();
      this.frame = null;
    }
  };
