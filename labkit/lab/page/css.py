"""How the page looks: one style sheet, put on the page by a widget, with JupyterLab's own colours for all text and paper.

So a dark theme is dark here too, at once and without a redraw; pictures are turned over by a filter that keeps the hues.
Blue is this run and the worker, green the server, orange what was disturbed, red what is wrong: as in the pictures.

The same widget carries the only script of the page. JupyterLab reads keys from whatever has the focus in a notebook:
`a` on a button of the lab would insert a cell and `d d` delete the cell with the lab. The script keeps keys without a
modifier inside the lab, so that arrows move menus and letters do nothing. Where scripts are forbidden it does not run.
"""

from __future__ import annotations

__all__ = ["ROOT", "aspects", "head"]

ROOT = "labkit-lab"

_DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
_GUARD = (
    f"this.closest('.{ROOT}').addEventListener('keydown',e=>{{"
    "if(e.ctrlKey||e.metaKey||e.altKey||e.shiftKey)return;e.stopPropagation();"
    "if(e.key===' '&&e.target.closest('.noUi-handle'))e.preventDefault()})"
)


def head(aspects: str) -> str:
    """The content of the widget that carries style sheet and script. `aspects`: the rules that `aspects()` made."""
    guard = f'<img alt="" src="{_DOT}" style="display:none" onload="{_GUARD}">'
    return f"<style>{_CSS.replace('ROOT', '.' + ROOT)}{aspects}</style>{guard}"


def aspects(shapes: dict[str, tuple[int, int]]) -> str:
    """{class: (width, height)} as rules: the room of a picture is there before the picture, so nothing jumps."""
    return "".join(f".{ROOT} .{name} img{{aspect-ratio:{wide}/{high}}}" for name, (wide, high) in shapes.items())


_CSS = """
ROOT{--lk-blue:#3b6cf6;--lk-green:#2a9158;--lk-orange:#e0700f;--lk-red:#cc1f1f;--lk-line:color-mix(in srgb,var(--jp-ui-font-color1,#212121) 15%,var(--jp-layout-color0,#fff));
 --lk-paper:var(--jp-layout-color0,#fff);--lk-ink:var(--jp-ui-font-color1,#212121);--lk-grey:var(--jp-ui-font-color2,#616161);
 --lk-track:color-mix(in srgb,var(--lk-ink) 14%,var(--lk-paper));--lk-faint:var(--jp-border-color1,#bdbdbd);--lk-tint:color-mix(in srgb,var(--lk-blue) 5%,var(--lk-paper));
 box-sizing:border-box;width:100%;max-width:1180px;flex-direction:column;align-items:stretch;background:var(--lk-paper);
 color:var(--lk-ink);font:13px/1.4 var(--jp-ui-font-family,system-ui,sans-serif);container-type:inline-size;
 border-radius:6px;box-shadow:0 0 0 1px var(--lk-line);margin:2px 1px 6px}
body[data-jp-theme-light="false"] ROOT{--lk-blue:#6f95ff;--lk-green:#4cb67c;--lk-orange:#f79646;--lk-red:#ff6b6b}
ROOT *{box-sizing:border-box}
ROOT .jupyter-widgets{margin:0;min-width:0}
ROOT .lm-Widget{overflow:visible}
ROOT .lk-gone{display:none!important}
ROOT .lk-hidden{visibility:hidden}
ROOT .lk-col{flex-direction:column;align-items:stretch}
ROOT .widget-html-content{line-height:1.4;font-size:inherit;color:inherit}
ROOT .widget-html{font-size:inherit;color:inherit;height:auto}
ROOT .lk-css{display:none}

ROOT button{width:auto;height:30px;line-height:28px;padding:0 10px;border:1px solid var(--lk-line);border-radius:6px;
 background:var(--jp-layout-color1,#fff);color:var(--lk-ink);font:13px/28px var(--jp-ui-font-family,sans-serif);box-shadow:none;
 flex:none;transition:background .08s,border-color .08s}
ROOT button i.fa{margin-right:7px;font-size:11px}
ROOT button i.fa.center{margin-right:0}
ROOT button:hover:enabled{background:var(--jp-layout-color2,#eee);box-shadow:none}
ROOT button:active:enabled{background:var(--jp-layout-color3,#ddd);transform:translateY(1px);box-shadow:none}
ROOT button:focus:enabled{outline:none;box-shadow:none}
ROOT :is(button,select,input,a,.noUi-handle,summary,[tabindex]):focus-visible{outline:2px solid var(--lk-blue)!important;
 outline-offset:1px}
ROOT button.lk-off{opacity:.45;cursor:default}
ROOT button.lk-main{background:var(--lk-blue);border-color:var(--lk-blue);color:#fff;font-weight:600}
ROOT button.lk-main:hover:enabled{background:color-mix(in srgb,var(--lk-blue) 88%,#000)}
ROOT button.lk-main:active:enabled{background:color-mix(in srgb,var(--lk-blue) 75%,#000)}
ROOT button.lk-quiet{height:24px;line-height:22px;font-size:12px;padding:0 8px}
ROOT button.lk-link{border:0;background:none;color:var(--lk-blue);padding:0 2px;height:22px;line-height:22px;font-size:12px;text-align:left}
ROOT button.lk-link:hover:enabled{background:none;text-decoration:underline}
ROOT button.lk-busy{background:var(--jp-layout-color3,#ddd)}
ROOT select,ROOT input[type=text]{height:24px;border:1px solid var(--lk-line);border-radius:6px;background-color:var(--jp-layout-color1,#fff);
 color:var(--lk-ink);font:12.5px var(--jp-ui-font-family,sans-serif);padding:0 6px;min-width:0}
ROOT .noUi-target{background:var(--lk-track);border:0;box-shadow:none;height:4px;border-radius:2px}
ROOT .noUi-connects{border-radius:2px}
ROOT .noUi-connect{background:var(--lk-blue);opacity:.35}
ROOT .noUi-handle{width:14px!important;height:14px!important;top:-5px!important;right:-7px!important;border:0!important;border-radius:50%;
 background:var(--lk-blue)!important;box-shadow:0 0 0 2px var(--lk-paper)!important;cursor:grab}
ROOT .noUi-handle:before,ROOT .noUi-handle:after{display:none}
ROOT .noUi-handle:active{transform:scale(1.15);cursor:grabbing}

ROOT .lk-top,ROOT .lk-player{gap:6px;padding:8px 12px 0;align-items:center;flex-wrap:wrap}
ROOT .lk-player{padding:4px 12px 6px;gap:10px;flex-wrap:nowrap;min-height:46px}
ROOT .lk-story{flex:0 1 236px;width:236px;min-width:120px}
ROOT .lk-story select{height:30px;font-size:13px;width:100%;padding:0 8px}
ROOT .lk-state{flex:0 0 152px;min-width:0;align-items:center;gap:8px}
ROOT .lk-state>.widget-html{flex:1 1 0;min-width:0}
ROOT .lk-now{font-variant-numeric:tabular-nums;white-space:nowrap;line-height:1.25}
ROOT .lk-now b{font-weight:600}
ROOT .lk-now .lk-live{color:var(--lk-blue);font-weight:700;letter-spacing:.02em}
ROOT .lk-now small,ROOT .lk-ends small{display:block;font-size:11px;color:var(--lk-grey);white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
ROOT .lk-scrub{flex:1 1 120px;width:auto;height:30px}
ROOT .lk-scrub .slider-container{margin:0 8px;flex:1 1 auto;height:30px;display:flex;align-items:center}
ROOT .lk-scrub .noUi-target{flex:1;height:5px}
ROOT .lk-scrub .noUi-handle{width:16px!important;height:16px!important;right:-8px!important;top:-5.5px!important}
ROOT .lk-slot{flex:0 0 104px}
ROOT .lk-ends{font-variant-numeric:tabular-nums;color:var(--lk-grey);font-size:12.5px;line-height:1.25;white-space:nowrap}
ROOT .lk-speed{flex:0 0 78px;width:78px}
ROOT .lk-speed select{width:100%;height:26px}
ROOT .lk-red{color:var(--lk-red)}ROOT .lk-blue{color:var(--lk-blue)}ROOT .lk-grey{color:var(--lk-grey)}

ROOT .lk-say{background:var(--lk-tint);border-top:1px solid var(--lk-line);border-bottom:1px solid var(--lk-line);padding:8px 14px;
 min-height:59px;font-size:14.5px}
ROOT .lk-say.lk-told{min-height:80px}
ROOT .lk-say .widget-html-content{line-height:1.45}
ROOT .lk-asked{flex-direction:column;align-items:stretch;gap:8px;margin:10px 12px 0;padding:12px 14px;border:1px solid var(--lk-blue);border-radius:8px;
 background:var(--lk-tint)}
ROOT .lk-asked .lk-text{font-size:15px}
ROOT .lk-answers{gap:8px;flex-wrap:wrap}
ROOT .lk-answers button{height:38px;line-height:36px;font-size:15px;font-weight:600;flex:1 1 110px;max-width:240px;border-color:var(--lk-blue)}
ROOT .lk-answers button.lk-said{background:var(--lk-blue);color:#fff;opacity:1}
ROOT .lk-answers button.lk-right{background:var(--lk-green);border-color:var(--lk-green);color:#fff;opacity:1}
ROOT .lk-answers button.lk-wrong{background:none;color:var(--lk-red);border-color:var(--lk-red);opacity:1}

ROOT .lk-body{display:flex;flex-wrap:nowrap;align-items:stretch}
ROOT .lk-side{flex:0 0 200px;flex-direction:column;align-items:stretch;gap:0;padding:2px 12px 12px;border-right:1px solid var(--lk-line)}
ROOT .lk-sec{flex-direction:column;align-items:stretch;gap:2px;margin-top:9px}
ROOT .lk-h{font-size:11px;letter-spacing:.07em;text-transform:uppercase;color:var(--lk-grey);border-bottom:1px solid var(--lk-line);padding-bottom:2px;margin-bottom:3px}
ROOT .lk-knob{width:auto;height:25px;align-items:center;display:flex;position:relative}
ROOT .lk-knob>label{width:64px!important;flex:none;text-align:left;margin:0;font-size:12.5px;color:var(--lk-grey);line-height:1.15;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
ROOT .lk-knob.lk-next>label:after{content:"next run";display:block;font-size:9.5px;color:var(--lk-blue);line-height:1}
ROOT .lk-knob.lk-bare.lk-next:after{content:"next run";position:absolute;right:24px;font-size:9.5px;color:var(--lk-blue);pointer-events:none}
ROOT .lk-knob>select,ROOT .lk-knob>input{flex:1 1 0;width:0}
ROOT .lk-knob .slider-container{flex:1 1 0;margin:0 4px 0 7px;height:25px;display:flex;align-items:center}
ROOT .lk-knob .slider-container .noUi-target{flex:1}
ROOT .lk-knob>.widget-readout{min-width:38px;max-width:none;width:auto;text-align:right;font-size:12.5px;color:var(--lk-ink);margin:0 0 0 4px;padding:0;overflow:visible;
 font-variant-numeric:tabular-nums;border:0}
ROOT .lk-more .lk-knob>label{width:78px!important;white-space:normal;font-size:11.5px;line-height:1.05}
ROOT .lk-check{width:auto;height:22px}
ROOT .lk-check .widget-label-basic{width:auto;font-size:12.5px;color:var(--lk-ink);display:flex;align-items:center;gap:5px;line-height:1.2;overflow:hidden;cursor:pointer}
ROOT .lk-check input[type=checkbox]{flex:none;margin:0;width:13px;height:13px;accent-color:var(--lk-blue)}
ROOT .lk-chips{flex-wrap:wrap;gap:4px 3px}
ROOT .lk-chips button{height:23px;line-height:21px;padding:0 6px;border-radius:12px;font-size:12px;background:none;border:1.5px solid var(--lk-blue);color:var(--lk-blue);min-width:31px}
ROOT .lk-chips button.lk-server{border-color:var(--lk-green);color:var(--lk-green)}
ROOT .lk-chips button.lk-slow{border-color:var(--lk-orange);color:var(--lk-orange)}
ROOT .lk-chips button.mod-active{background:var(--lk-blue);color:#fff;box-shadow:none}
ROOT .lk-chips button.lk-server.mod-active{background:var(--lk-green)}
ROOT .lk-chips button.lk-slow.mod-active{background:var(--lk-orange)}
ROOT .lk-chips button.lk-dead{border-color:var(--lk-faint);color:var(--lk-faint);text-decoration:line-through}
ROOT .lk-chips button.lk-dead.mod-active{background:var(--lk-faint);color:var(--lk-paper)}
ROOT .lk-trouble .noUi-handle{background:var(--lk-orange)!important}
ROOT .lk-trouble .noUi-connect{background:var(--lk-orange)}
ROOT .lk-verbs{flex-wrap:wrap;gap:5px;margin-top:2px;min-height:24px}
ROOT .lk-runs{gap:0}
ROOT .lk-run{display:grid;grid-template-columns:minmax(0,1fr) auto 18px;align-items:center;height:22px}
ROOT .lk-row-head .lk-row{font-size:10.5px}
ROOT .lk-run.lk-on{background:var(--lk-tint)}
ROOT .lk-run button{border:0;background:none;height:22px;line-height:22px;padding:0;font-size:12px;text-align:left;overflow:hidden;text-overflow:ellipsis}
ROOT .lk-run button.lk-pin{color:var(--lk-faint);text-align:center}
ROOT .lk-run button.lk-pin.lk-pinned{color:var(--lk-ink)}
ROOT .lk-row{display:grid;grid-template-columns:31px 27px 29px;gap:0 3px;text-align:right;font-size:11.5px;font-variant-numeric:tabular-nums;color:var(--lk-grey)}
ROOT .lk-flow{flex-wrap:wrap;gap:0 10px}
ROOT a{color:var(--lk-blue);text-decoration:none;font-size:12px}
ROOT a:hover{text-decoration:underline}
ROOT .lk-code code{display:block;font:11px/1.35 var(--jp-code-font-family,monospace);background:var(--jp-layout-color2,#f3f3f3);color:var(--lk-ink);padding:5px 6px;border-radius:4px;
 overflow-wrap:anywhere;user-select:all}

ROOT .lk-main-column{flex:1 1 0;min-width:0;flex-direction:column;align-items:stretch;justify-content:space-between}
ROOT .lk-shelf{flex-direction:column;align-items:stretch;padding:0 12px 10px 22px}
ROOT .lk-panels{min-width:0;display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);grid-auto-flow:row dense;gap:6px 16px;padding:8px 8px 8px 14px;align-content:start}
ROOT .lk-full .lk-panels{padding:8px 0}
ROOT .lk-panel{flex-direction:column;align-items:stretch;min-width:0}
ROOT .lk-wide{grid-column:1/-1}
ROOT .lk-title{height:20px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;font-size:12.5px;color:var(--lk-grey);padding-left:8px}
ROOT .lk-title .widget-html-content{overflow:hidden;text-overflow:ellipsis;line-height:20px}
ROOT .lk-title b{color:var(--lk-ink);font-size:13.5px;font-weight:600;margin-right:5px}
ROOT .lk-panel img{width:100%;height:auto;display:block;object-fit:contain;max-width:none;background:#fff}
body[data-jp-theme-light="false"] ROOT .lk-panel img{filter:invert(.934) hue-rotate(180deg)}

ROOT .lk-foot{flex-direction:column;align-items:stretch;border-top:1px solid var(--lk-line);padding:7px 14px 8px;gap:5px}
ROOT .lk-numbers{font-size:12.5px;color:var(--lk-grey);font-variant-numeric:tabular-nums;min-height:18px}
ROOT .lk-numbers b{color:var(--lk-ink);font-weight:600}
ROOT .lk-numbers span{white-space:nowrap;margin-right:14px}
ROOT .lk-log{font-size:12px;color:var(--lk-grey);font-variant-numeric:tabular-nums;height:54px;overflow-y:auto;line-height:18px}
ROOT .lk-log div{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}

@container (max-width:930px){
 ROOT .lk-side{flex-basis:184px;padding:2px 10px 12px}
 ROOT .lk-panels{padding-left:10px;column-gap:10px}
}
@container (max-width:740px){
 ROOT .lk-body{flex-wrap:wrap}
 ROOT .lk-main-column{flex-basis:100%}
 ROOT .lk-panels{padding:8px 4px}
 ROOT .lk-shelf{padding:0 12px 10px}
 ROOT .lk-side{order:2;flex-basis:100%;border-right:0;border-top:1px solid var(--lk-line);display:grid;grid-template-columns:repeat(auto-fill,minmax(190px,1fr));gap:0 20px}
 ROOT .lk-player{flex-wrap:wrap}
 ROOT .lk-state{flex-basis:200px}
}
@container (max-width:560px){
 ROOT .lk-panels{grid-template-columns:minmax(0,1fr)}
 ROOT .lk-scrub{flex-basis:100%;order:9}
}
"""
